# SPDX-License-Identifier: Apache-2.0
"""What secrets look like: names of variables and flags, the forms they stand in, tokens known by their look.

The patterns are long and slow to compile, and few texts need many of them: each goes with the signs that a text it
matches must show, and is compiled for the first text that shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

__all__ = ["is_secret_name", "secret_patterns"]

_NAME_ENDS = (
    "TOKEN",
    "KEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "PGPASSWORD",
    "REQUIREPASS",
    "MASTERAUTH",
    "ACCESSKEY",
    "JWT",
)
# What `…_TOKEN`, `…_KEY` and `…_PASS` are also called without being a secret.
_HARMLESS = {
    "TOKEN": "BOS EOS PAD UNK SEP CLS MASK IMAGE VIDEO AUDIO STOP START END BEGIN NEXT NEW PER MAX MIN NUM SPECIAL "
    "FIRST LAST PROMPT OUTPUT INPUT BONUS DRAFT THINK TOOL ADDITIONAL EXTRA",
    "KEY": "PUBLIC SORT PRIMARY FOREIGN CACHE INDEX GROUP PARTITION HOT",
    "PASS": "FIRST SECOND POST PRE GRAD ONE TWO SINGLE BY FORWARD BACKWARD FUSION",
}


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret (`HF_TOKEN`, `EDGE_KEY`; not `MAX_TOKENS`, `KEYFILE`)."""
    *before, last = name.upper().replace("-", "_").split("_")
    if last == "ID":
        return before[-2:] == ["ACCESS", "KEY"]
    if last == "PWD" and not any(before):
        return False  # the current directory
    return last in _NAME_ENDS and not (before and before[-1] in _HARMLESS.get(last, "").split())


def secret_patterns(text: str) -> Iterator[re.Pattern[str]]:
    """Yield the patterns that may match in a text.

    Each has the secret as its group `s` or `sq`, and perhaps the name that makes it one as `n`.
    """
    # As `(?i)` compares, which takes a dotless ı for an i.
    folded = text.lower() if text.isascii() else text.translate({0x130: "i", 0x131: "i"}).casefold()
    named: bool | None = None
    for form in _FORMS:
        if form.signs and not (form.also in folded and any(sign in folded for sign in form.signs)):
            continue
        if form.named:
            if named is None:
                named = _compiled(_NAMED).search(text) is not None
            if not named:
                continue
        yield _compiled(form.pattern)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class _Form(NamedTuple):
    """A form of secrets: its pattern, and what a text must hold for it to match (in lower case; any of them)."""

    pattern: str
    signs: tuple[str, ...] = ()
    named: bool = False  # also the name of a secret, and no letter after it
    also: str = ""


_NAMES = "|".join(_NAME_ENDS)
_NAMED = rf"(?i)(?:{_NAMES}|access_key_id)(?!\w)"
# A value: quoted (escaped quotes too), or up to white space or a closing sign. References start with `$`.
_VALUE = r"""(?P<q>\\*["'])?(?(q)(?P<sq>(?!\$)(?:(?!(?P=q))[^\n])+)|(?P<s>(?!\$|--)[^\s"'`|&;<>(){}\[\],\\]+))"""
_GAP = r"(?:[ \t]|\\\r?\n)+"
_REST = r"(?:[^\n;|&\\]|\\\r?\n|\\[^\n]){0,120}?"  # the rest of one command, to what matters
_BEHIND = rf"""(?:=|["']\s*,\s*|["']?[ \t]*\r?\n\s*-\s+|["']?{_GAP})"""
_LOGIN = rf"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|helm){_GAP}(?:registry{_GAP})?login\b{_REST}[ \t]"
_STDIN = r"(?:--pass(?:word|phrase)-(?:stdin|fd)|login|--with-token)\b"
_CLIENT = rf"\b(?:docker|podman|nerdctl|helm|huggingface-cli|hf|gh|glab|modelscope|gpg2?)\b{_REST}{_STDIN}"
_READER = rf"(?:\bsudo\b{_REST}[ \t]-[A-Za-z]*S\b|{_CLIENT})"
# not a secret yet: `# API key: none needed`
_PROSE = r"(?!(?:none|not|see|from|optional|required|needed)[\s.,;)])"
_ABROAD = "密码|口令|密碼|令牌|密钥|パスワード|비밀번호|passwort|kennwort|mot de passe|contraseña|senha|пароль"

_FORMS = (
    # Tokens that are known by their look, as their issuers document them.
    _Form(r"(?P<s>\b(?:hf_|api_org_)[A-Za-z0-9]{30,})", ("hf_", "api_org_")),
    _Form(
        r"(?P<s>\bgh[opusr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,})",
        ("gho_", "ghp_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    ),
    _Form(r"(?P<s>\bxox[abeprs]-(?=[A-Za-z-]*\d)[A-Za-z0-9-]{16,})", ("xox",)),
    _Form(r"(?P<s>\bsk-(?=[A-Za-z0-9_-]*?[A-Za-z0-9]{16})(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,})", ("sk-",)),
    _Form(
        r"(?P<s>\b(?:sk|pk)-lf-[0-9a-f-]{30,}|\bms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{18,})",
        ("k-lf-", "ms-"),
    ),
    _Form(
        r"(?P<s>\bnvapi-[A-Za-z0-9_-]{30,}|\bgsk_[A-Za-z0-9]{30,}|\bdckr_pat_[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,})",
        ("nvapi-", "gsk_", "dckr_pat_", "npm_"),
    ),
    _Form(
        r"(?P<s>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}|\bpypi-AgE[A-Za-z0-9_-]{30,})",
        ("akia", "asia", "aiza", "pypi-age"),
    ),
    _Form(r"(?P<s>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*)", ("eyj",)),
    _Form(
        r"(?i)\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?(?P<s>(?!\$)[^\s\"'\\]+)",
        ("authorization",),
    ),
    _Form(r"(?i)\bbearer\s+(?P<s>(?!\$)[A-Za-z0-9._~+/=-]{4,})", ("bearer",)),
    _Form(r"(?i)[a-z][a-z0-9+.-]*://(?P<s>(?!\$)[^\s/@:\"']*:(?!\$)[^\s/@\"']+)@", ("://",), also="@"),
    # --api-key VALUE, --ssl-keyfile-password=VALUE, --token VALUE; `--secret NAME` names one
    _Form(rf"(?i)(?<![\w$-])-{{1,2}}(?!-|secret\b)(?P<n>(?:[\w-]*[_-])?(?:{_NAMES})){_BEHIND}{_VALUE}", ("-",), True),
    _Form(rf"(?i)(?<![\w$-])(?P<n>(?:[\w-]*[_-])?(?:{_NAMES}|access_key_id))=(?:\\\r?\n[ \t]*)?{_VALUE}", ("=",), True),
    _Form(rf"(?i)(?<![\w$-])(?P<n>[\w-]*[_-](?:{_NAMES}|access_key_id))[\"']?\s*:\s+{_VALUE}", (":",), True),
    _Form(rf"(?i)(?<![\w$-])(?P<n>[\w-]*[_-](?:{_NAMES}))\\*\"\s*:\s*(?!null|true|false){_VALUE}", ('"',), True),
    # JSON without blanks
    _Form(
        rf"(?i)[{{,]\s*\\*\"(?P<n>token|secret|credentials?|passphrase|{_NAMES})\\*\"\s*:(?=\s*\\*\"){_VALUE}",
        ('"',),
        True,
    ),
    # Python: os.environ["HF_TOKEN"] = "…", environ.setdefault("HF_TOKEN", "…"), login("…")
    _Form(rf"(?i)\[[\"'](?P<n>[\w-]*(?:{_NAMES}))[\"']\]\s*=\s*(?=[\"'rbf]){_VALUE}", ("['", '["'), True),
    _Form(rf"(?i)\(\s*[\"'](?P<n>[\w-]*(?:{_NAMES}))[\"']\s*,\s*(?=[\"']){_VALUE}", ("(",), True),
    _Form(r"(?<!\w)login\(\s*(?P<q>[\"'])(?P<s>(?!\$)[^\"'\n]+)(?P=q)", ("login(",)),
    # systemd: SetCredential=ID:VALUE, which may go on over lines
    _Form(
        r"(?m)^[ \t]*SetCredential(?:Encrypted)?[ \t]*=[ \t]*[^:\s]+:[ \t]*(?P<s>(?:[^\n\\]|\\\r?\n|\\[^\n])+)",
        ("setcredential",),
    ),
    # private keys, line breaks as such or as \n
    _Form(
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:\s|\\n)*"
        r"(?P<s>(?:(?!-----)[^\0]){1,20000}?)(?=\s*(?:\\n)?\s*-----END|\Z)",
        ("private key-----",),
    ),
    # a key as the user of an address, with no password: DSNs
    _Form(r"(?i)https?://(?P<s>(?=[a-z]*\d)[a-z0-9]{16,})@", ("://",), also="@"),
    # htpasswd: Traefik's labels, `user:$apr1$…`
    _Form(r"(?i)basic-?auth\.users=[^\s:=\"']+:(?P<s>[^\s\"',]+)", ("auth.users=",)),
    _Form(r"(?<![\w$])[\w.-]+:(?P<s>\$\$?(?:apr1|2[aby]|[156])\$[^\s\"',]+)", (":$",)),
    # `# token 1a2B…`: only what looks like one
    _Form(
        r"(?i:\b(?:token|api[ _-]?key|password|passphrase|secret)[ \t]+)"
        r"(?P<s>(?=[A-Za-z0-9_]*\d)(?=[A-Za-z0-9_]*[A-Z])(?=[A-Za-z0-9_]*[a-z])[A-Za-z0-9_]{12,}(?![\w./-])|[0-9a-f]{24,}\b)",
        named=True,
    ),
    _Form(
        rf"(?im)(?:^[ \t#/*-]*|[{{,][ \t]*\\*[\"'])(?:token|secret|credentials?)\\*[\"']?\s*:\s+{_VALUE}", (":",), True
    ),
    _Form(
        rf"(?i)\b(?:hf|hub|hugging ?face|api|access|auth|secret)[ \t]+(?:token|key)\s*[:=：]\s*{_PROSE}{_VALUE}",
        (":", "=", "："),
        True,
    ),
    # notes: `# password: x`, `密码：x`
    _Form(
        rf"(?i)(?<![\w$-])pass(?:word|wd|phrase)\\*[\"']?(?:\s*[:：]\s*|[ \t]+is[ \t]+|[ \t]+=[ \t]*){_PROSE}{_VALUE}",
        ("pass",),
    ),
    _Form(
        r"(?i)#[^\n#]{0,120}?(?<![\w$-])(?:pwd?|(?:sudo|root|user|admin|login|ssh)[ \t]+pass|passcode)"
        rf"[ \t]*[:=：][ \t]*{_PROSE}{_VALUE}",
        ("pw", "pass"),
    ),
    _Form(rf"(?i)(?:{_ABROAD})\s*(?:[:=：]|是|为|is\b)\s*{_VALUE}", tuple(_ABROAD.casefold().split("|"))),
    # other programs
    _Form(rf"{_LOGIN}(?:-p[ \t=]*|--password(?:=|{_GAP})){_VALUE}", ("login",)),
    _Form(rf"\bsshpass{_GAP}-p[ \t]*{_VALUE}", ("sshpass",)),
    _Form(rf"\bwandb{_GAP}login{_GAP}(?:--(?:relogin|cloud|verify){_GAP})*{_VALUE}", ("wandb",)),
    _Form(
        rf"\b(?:curl|https?|xh|wget){_GAP}(?:{_REST}[ \t])?(?:-u|--user|--proxy-user|-U|-a|--auth)[ \t=]*[\"']?"
        r"[^\s:\"'$]+:(?P<s>(?!\$)[^\s\"'|&;]+)",
        ("curl", "http", "xh", "wget"),
    ),
    _Form(
        rf"\b(?:echo|printf){_GAP}(?:-\w+{_GAP}|[\"']?%s(?:\\n)?[\"']?{_GAP})?{_VALUE}[\"']?[ \t]*\|[ \t]*{_READER}",
        ("echo", "printf"),
    ),
    _Form(rf"{_READER}{_REST}<<<[ \t]*{_VALUE}", ("<<<",)),
)
