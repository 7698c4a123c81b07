# SPDX-License-Identifier: Apache-2.0
"""What secrets look like: names of variables and flags, the forms they stand in, tokens known by their look."""

from __future__ import annotations

import re
from functools import lru_cache

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


@lru_cache(maxsize=1)
def secret_patterns() -> tuple[re.Pattern[str], ...]:
    """Each pattern has the secret as its group `s` or `sq`, and perhaps the name that makes it one as `n`."""
    # A value: quoted (escaped quotes too), or up to white space or a closing sign. References start with `$`.
    value = r"""(?P<q>\\*["'])?(?(q)(?P<sq>(?!\$)(?:(?!(?P=q))[^\n])+)|(?P<s>(?!\$|--)[^\s"'`|&;<>(){}\[\],\\]+))"""
    gap = r"(?:[ \t]|\\\r?\n)+"
    names = "|".join(_NAME_ENDS)
    rest = r"(?:[^\n;|&\\]|\\\r?\n|\\[^\n]){0,120}?"  # the rest of one command, to what matters
    behind = rf"""(?:=|["']\s*,\s*|["']?[ \t]*\r?\n\s*-\s+|["']?{gap})"""
    login = rf"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|helm){gap}(?:registry{gap})?login\b{rest}[ \t]"
    stdin = r"(?:--pass(?:word|phrase)-(?:stdin|fd)|login|--with-token)\b"
    client = rf"\b(?:docker|podman|nerdctl|helm|huggingface-cli|hf|gh|glab|modelscope|gpg2?)\b{rest}{stdin}"
    reader = rf"(?:\bsudo\b{rest}[ \t]-[A-Za-z]*S\b|{client})"
    # not a secret yet: `# API key: none needed`
    prose = r"(?!(?:none|not|see|from|optional|required|needed)[\s.,;)])"
    return (
        *map(re.compile, _TOKENS),
        re.compile(
            r"(?i)\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?(?P<s>(?!\$)[^\s\"'\\]+)"
        ),
        re.compile(r"(?i)\bbearer\s+(?P<s>(?!\$)[A-Za-z0-9._~+/=-]{4,})"),
        re.compile(r"(?i)[a-z][a-z0-9+.-]*://(?P<s>(?!\$)[^\s/@:\"']*:(?!\$)[^\s/@\"']+)@"),
        # --api-key VALUE, --ssl-keyfile-password=VALUE, --token VALUE; `--secret NAME` names one
        re.compile(rf"(?i)(?<![\w$-])-{{1,2}}(?!-|secret\b)(?P<n>(?:[\w-]*[_-])?(?:{names})){behind}{value}"),
        re.compile(rf"(?i)(?<![\w$-])(?P<n>(?:[\w-]*[_-])?(?:{names}|access_key_id))=(?:\\\r?\n[ \t]*)?{value}"),
        re.compile(rf"(?i)(?<![\w$-])(?P<n>[\w-]*[_-](?:{names}|access_key_id))[\"']?\s*:\s+{value}"),
        re.compile(rf"(?i)(?<![\w$-])(?P<n>[\w-]*[_-](?:{names}))\\*\"\s*:\s*(?!null|true|false){value}"),
        # JSON without blanks
        re.compile(
            rf"(?i)[{{,]\s*\\*\"(?P<n>token|secret|credentials?|passphrase|{names})\\*\"\s*:(?=\s*\\*\"){value}"
        ),
        # Python: os.environ["HF_TOKEN"] = "…", environ.setdefault("HF_TOKEN", "…"), login("…")
        re.compile(rf"(?i)\[[\"'](?P<n>[\w-]*(?:{names}))[\"']\]\s*=\s*(?=[\"'rbf]){value}"),
        re.compile(rf"(?i)\(\s*[\"'](?P<n>[\w-]*(?:{names}))[\"']\s*,\s*(?=[\"']){value}"),
        re.compile(r"(?<!\w)login\(\s*(?P<q>[\"'])(?P<s>(?!\$)[^\"'\n]+)(?P=q)"),
        # systemd: SetCredential=ID:VALUE, which may go on over lines
        re.compile(
            r"(?m)^[ \t]*SetCredential(?:Encrypted)?[ \t]*=[ \t]*[^:\s]+:[ \t]*(?P<s>(?:[^\n\\]|\\\r?\n|\\[^\n])+)"
        ),
        # private keys, line breaks as such or as \n
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:\s|\\n)*"
            r"(?P<s>(?:(?!-----)[^\0]){1,20000}?)(?=\s*(?:\\n)?\s*-----END|\Z)"
        ),
        # a key as the user of an address, with no password: DSNs
        re.compile(r"(?i)https?://(?P<s>(?=[a-z]*\d)[a-z0-9]{16,})@"),
        # htpasswd: Traefik's labels, `user:$apr1$…`
        re.compile(r"(?i)basic-?auth\.users=[^\s:=\"']+:(?P<s>[^\s\"',]+)"),
        re.compile(r"(?<![\w$])[\w.-]+:(?P<s>\$\$?(?:apr1|2[aby]|[156])\$[^\s\"',]+)"),
        # `# token 1a2B…`: only what looks like one
        re.compile(
            r"(?i:\b(?:token|api[ _-]?key|password|passphrase|secret)[ \t]+)"
            r"(?P<s>(?=[A-Za-z0-9_]*\d)(?=[A-Za-z0-9_]*[A-Z])(?=[A-Za-z0-9_]*[a-z])[A-Za-z0-9_]{12,}(?![\w./-])|[0-9a-f]{24,}\b)"
        ),
        re.compile(rf"(?im)(?:^[ \t#/*-]*|[{{,][ \t]*\\*[\"'])(?:token|secret|credentials?)\\*[\"']?\s*:\s+{value}"),
        re.compile(
            rf"(?i)\b(?:hf|hub|hugging ?face|api|access|auth|secret)[ \t]+(?:token|key)\s*[:=：]\s*{prose}{value}"
        ),
        # notes: `# password: x`, `密码：x`
        re.compile(
            rf"(?i)(?<![\w$-])pass(?:word|wd|phrase)\\*[\"']?(?:\s*[:：]\s*|[ \t]+is[ \t]+|[ \t]+=[ \t]*){prose}{value}"
        ),
        re.compile(
            r"(?i)#[^\n#]{0,120}?(?<![\w$-])(?:pwd?|(?:sudo|root|user|admin|login|ssh)[ \t]+pass|passcode)"
            rf"[ \t]*[:=：][ \t]*{prose}{value}"
        ),
        re.compile(rf"(?i)(?:{_ABROAD})\s*(?:[:=：]|是|为|is\b)\s*{value}"),
        # other programs
        re.compile(rf"{login}(?:-p[ \t=]*|--password(?:=|{gap})){value}"),
        re.compile(rf"\bsshpass{gap}-p[ \t]*{value}"),
        re.compile(rf"\bwandb{gap}login{gap}(?:--(?:relogin|cloud|verify){gap})*{value}"),
        re.compile(
            rf"\b(?:curl|https?|xh|wget){gap}(?:{rest}[ \t])?(?:-u|--user|--proxy-user|-U|-a|--auth)[ \t=]*[\"']?"
            r"[^\s:\"'$]+:(?P<s>(?!\$)[^\s\"'|&;]+)"
        ),
        re.compile(
            rf"\b(?:echo|printf){gap}(?:-\w+{gap}|[\"']?%s(?:\\n)?[\"']?{gap})?{value}[\"']?[ \t]*\|[ \t]*{reader}"
        ),
        re.compile(rf"{reader}{rest}<<<[ \t]*{value}"),
    )


# Tokens that are known by their look, as their issuers document them.
_TOKENS = (
    r"(?P<s>\b(?:hf_|api_org_)[A-Za-z0-9]{30,})",
    r"(?P<s>\bgh[opusr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,})",
    r"(?P<s>\bxox[abeprs]-(?=[A-Za-z-]*\d)[A-Za-z0-9-]{16,})",
    r"(?P<s>\bsk-(?=[A-Za-z0-9_-]*?[A-Za-z0-9]{16})(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,})",
    r"(?P<s>\b(?:sk|pk)-lf-[0-9a-f-]{30,}|\bms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{18,})",
    r"(?P<s>\bnvapi-[A-Za-z0-9_-]{30,}|\bgsk_[A-Za-z0-9]{30,}|\bdckr_pat_[A-Za-z0-9_-]{20,}|\bnpm_[A-Za-z0-9]{30,})",
    r"(?P<s>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{35}|\bpypi-AgE[A-Za-z0-9_-]{30,})",
    r"(?P<s>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*)",
)
_ABROAD = "密码|口令|密碼|令牌|密钥|パスワード|비밀번호|passwort|kennwort|mot de passe|contraseña|senha|пароль"
