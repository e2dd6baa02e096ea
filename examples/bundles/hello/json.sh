# shellcheck shell=sh
# JSON with nothing but a POSIX shell and awk, for hosts without jq. To be sourced.
#
# Where jq is installed, take that instead:
#     greeting=$(jq -r '.instance.parameters.greeting // "Hello"' "$EVENKEEL_REQUEST")
#     jq -n --arg message "$message" '{credentials: {$message}}' >"$EVENKEEL_OUTPUT"
# (but never `--arg` for a secret: arguments are seen by every user of the host).

# json_get FILE KEY…: prints the value that lies under these keys: a string decoded, anything
# else as it stands. Ends with 1 where there is none. FILE holds valid JSON: the broker wrote it.
json_get() {
    LC_ALL=C awk '
    function blank() { while (index(" \t\r\n", substr(text, at, 1)) && at <= size) at++ }
    # A string: `at` is on its first quote, and behind its last one afterwards.
    function string(    c, out, code, low) {
        for (at++; (c = substr(text, at, 1)) != "\""; at++) {
            if (at > size) exit 1
            if (c != "\\") { out = out c; continue }
            c = substr(text, ++at, 1)
            if (c != "u") { out = out (c in plain ? plain[c] : c); continue }
            code = hex(substr(text, at + 1, 4)); at += 4
            if (code >= 55296 && code < 56320) {            # the first half of a surrogate pair
                low = hex(substr(text, at + 3, 4)); at += 6
                code = 65536 + (code - 55296) * 1024 + low - 56320
            }
            out = out utf8(code)
        }
        at++
        return out
    }
    function hex(digits,    n, i) {
        for (i = 1; i <= 4; i++) n = n * 16 + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
        return n
    }
    function utf8(code) {
        if (code < 128) return sprintf("%c", code)
        if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
        if (code < 65536) return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
        return sprintf("%c%c%c%c", 240 + int(code / 262144), 128 + int(code / 4096) % 64, 128 + int(code / 64) % 64, 128 + code % 64)
    }
    # Any value, `depth` keys below the top; `on`: all keys so far were those that are asked for.
    function value(depth, on,    c, start, key, found) {
        blank(); start = at; c = substr(text, at, 1)
        if (c == "\"") {
            found = string()
            if (on && depth == wanted) { printf "%s", found; exit 0 }
            return
        }
        if (c == "{" || c == "[") {
            at++; blank()
            while (index("}]", substr(text, at, 1)) == 0) {
                key = ""
                if (c == "{") { key = string(); blank(); at++ }
                value(depth + 1, c == "{" && on && depth < wanted && key == path[depth + 1])
                blank()
                if (substr(text, at, 1) == ",") { at++; blank() }
                if (at > size) exit 1
            }
            at++
        } else
            while (at <= size && index(",]} \t\r\n", substr(text, at, 1)) == 0) at++
        if (on && depth == wanted) { printf "%s", substr(text, start, at - start); exit 0 }
    }
    BEGIN {
        plain["n"] = "\n"; plain["t"] = "\t"; plain["r"] = "\r"; plain["b"] = "\b"; plain["f"] = "\f"
        for (i = 2; i < ARGC; i++) path[++wanted] = ARGV[i]
        while ((getline line < ARGV[1]) > 0) text = text line "\n"
        size = length(text); at = 1
        value(0, 1)
        exit 1
    }' "$@"
}

# json_string TEXT: prints TEXT as a JSON string, quotes included. TEXT goes through a pipe from
# a builtin, so it appears in no argument list and in no environment.
json_string() {
    printf '%s\n' "$1" | LC_ALL=C awk '
    BEGIN {
        for (i = 1; i < 32; i++) escape[sprintf("%c", i)] = sprintf("\\u%04x", i)
        escape["\""] = "\\\""; escape["\\"] = "\\\\"
        printf "\""
    }
    {
        if (NR > 1) printf "\\n"
        for (i = 1; i <= length($0); i++) {
            c = substr($0, i, 1)
            printf "%s", (c in escape ? escape[c] : c)
        }
    }
    END { printf "\"" }'
}
