# Turns a libpq connection URI (first line of the input) into a service file, so that psql finds
# the password in a private file: arguments and environment are seen by others.
# https://www.postgresql.org/docs/current/libpq-connect.html, 34.1.1.2 and 34.17
# Run with LC_ALL=C, so that characters are bytes.

function refuse(reason) { print "the secret ADMIN_URL " reason > "/dev/stderr"; exit 1 }

function decoded(text,    out, at, code) {
    while ((at = index(text, "%")) > 0) {
        code = tolower(substr(text, at + 1, 2))
        if (code !~ /^[0-9a-f][0-9a-f]$/ || code == "00") refuse("has a bad percent-encoding")
        out = out substr(text, 1, at - 1) sprintf("%c", 16 * digit(substr(code, 1, 1)) + digit(substr(code, 2, 1)))
        text = substr(text, at + 3)
    }
    return out text
}
function digit(c) { return index("0123456789abcdef", c) - 1 }

function set(key, value) {
    if (value == "") return
    # libpq cuts white space off the ends of a line, and knows no quoting here.
    if (value ~ /[\r\n]/ || value ~ /[ \t\f\v]$/) refuse("holds a line break or ends a value with a space")
    line[key] = value
}

NR == 1 {
    sub(/\r$/, "")
    if (!sub(/^postgres(ql)?:\/\//, "")) refuse("does not begin with postgresql://")
    if ((at = index($0, "?")) > 0) { options = substr($0, at + 1); $0 = substr($0, 1, at - 1) }
    if ((at = index($0, "/")) > 0) { set("dbname", decoded(substr($0, at + 1))); $0 = substr($0, 1, at - 1) }
    if ((at = index($0, "@")) > 0) {
        user = substr($0, 1, at - 1); $0 = substr($0, at + 1)
        if ((at = index(user, ":")) > 0) { set("password", decoded(substr(user, at + 1))); user = substr(user, 1, at - 1) }
        set("user", decoded(user))
    }
    many = split($0, server, ",")
    for (i = 1; i <= many; i++) {
        host = server[i]; port = ""
        if (match(host, /:[0-9]*$/) && (host !~ /^\[/ || host ~ /\]:[0-9]*$/)) {
            port = substr(host, RSTART + 1); host = substr(host, 1, RSTART - 1)
        }
        gsub(/^\[|\]$/, "", host)
        hosts = hosts (i > 1 ? "," : "") decoded(host)
        ports = ports (i > 1 ? "," : "") (port == "" ? 5432 : port)
    }
    set("host", hosts)
    set("port", ports)
    many = split(options, option, "&")
    for (i = 1; i <= many; i++) {
        if ((at = index(option[i], "=")) == 0) refuse("has an option without a value")
        key = decoded(substr(option[i], 1, at - 1))
        if (key !~ /^[a-z_]+$/) refuse("has an option whose name is none")
        value = decoded(substr(option[i], at + 1))
        if (key == "ssl" && value == "true") { key = "sslmode"; value = "require" }
        # These two are the actions' own.
        if (key != "application_name" && key != "options") set(key, value)
    }
    if (!("dbname" in line)) line["dbname"] = "postgres"
    print "[evenkeel]"
    for (key in line) print key "=" line[key]
    exit 0
}
END { if (NR == 0) refuse("is empty") }
