#!/usr/bin/env bash
# Asks a running gateway whether it works: health, readiness and one small request in each format, or
# with --no-cost, for which a health-check key is enough, the model list and one count of tokens.
#
# One line out, and an exit code as monitoring plugins have it:
# 0 all answered, 1 some formats failed, 2 down or not ready or no format works, 3 the probe itself could not run.
# The key never stands in a command line, neither in this one nor in curl's.
set -uo pipefail

base=${GATEWAY_URL:-http://127.0.0.1:8080}
key=${GATEWAY_KEY:-}
key_file=${GATEWAY_KEY_FILE:-}
chat_model=${GATEWAY_CHAT_MODEL:-beta-5.4-mini}
messages_model=${GATEWAY_MESSAGES_MODEL:-alpha-haiku-4-5-20251001}
responses_model=${GATEWAY_RESPONSES_MODEL:-beta-5.4-mini}
timeout=${GATEWAY_TIMEOUT:-30}
health_only=
no_cost=

usage() {
    cat <<'USAGE'
Usage: scripts/probe.sh [options]

  --url URL           address of the gateway, without /v1     (GATEWAY_URL, http://127.0.0.1:8080)
  --key-file FILE     file that holds the key                 (GATEWAY_KEY_FILE; or the key itself in GATEWAY_KEY)
  --chat MODEL        model to ask in each format; - skips it (GATEWAY_CHAT_MODEL)
  --messages MODEL                                            (GATEWAY_MESSAGES_MODEL)
  --responses MODEL                                           (GATEWAY_RESPONSES_MODEL)
  --timeout SECONDS   for each request                        (GATEWAY_TIMEOUT, 30)
  --no-cost           ask for the model list and a count of tokens of the --messages model instead
  --health-only       ask no model, need no key
USAGE
}

finish() { # code word text
    printf 'GATEWAY %s - %s\n' "$2" "$3"
    exit "$1"
}

unknown() { finish 3 UNKNOWN "$1"; }

while (($#)); do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --health-only) health_only=yes; shift; continue ;;
        --no-cost) no_cost=yes; shift; continue ;;
    esac
    (($# > 1)) || unknown "$1 needs a value or is no option (--help lists them)"
    case $1 in
        --url) base=$2 ;;
        --key-file) key_file=$2 ;;
        --chat) chat_model=$2 ;;
        --messages) messages_model=$2 ;;
        --responses) responses_model=$2 ;;
        --timeout) timeout=$2 ;;
        *) unknown "no option $1 (--help lists them)" ;;
    esac
    shift 2
done

base=${base%/}
command -v curl >/dev/null || unknown 'needs curl'
[[ $timeout =~ ^[0-9]+$ ]] || unknown 'the timeout is a number of seconds'
for model in "$chat_model" "$messages_model" "$responses_model"; do
    [[ $model =~ ^[][A-Za-z0-9._:/@-]+$ ]] || unknown "not a model id: $model"
done
if [[ -z $health_only && -z $key ]]; then
    [[ $key_file ]] || unknown 'no key: set GATEWAY_KEY, name a --key-file, or ask for --health-only'
    [[ -r $key_file ]] || unknown "cannot read the key file $key_file"
    # The last line, so that the whole output of "gateway key mint" is a key file too.
    while read -r line || [[ $line ]]; do
        key=${line%$'\r'}
    done <"$key_file"
    [[ $key ]] || unknown "the key file $key_file is empty"
fi

# Sets status ("not at all" without an answer), seconds and request_id. Further arguments go to curl.
ask() { # path, header lines on stdin
    local line path=$1
    shift
    status=000 seconds=0 request_id=
    while IFS= read -r line; do
        line=${line%$'\r'}
        case ${line,,} in
            x-request-id:*) request_id=${line#*: } ;;
            result:*) read -r _ status seconds <<<"$line" ;;
        esac
    done < <(
        curl -q --silent --max-time "$timeout" --header @- --dump-header - --output /dev/null \
            --write-out '\nresult: %{http_code} %{time_total}\n' "$@" "$base$path"
    )
    [[ $status == 000 ]] && status='not at all'
}

ask /healthz </dev/null
[[ $status == 200 ]] || finish 2 CRITICAL "$base: health answers $status"
ask /readyz </dev/null
[[ $status == 200 ]] || finish 2 CRITICAL "$base: alive but not ready (readiness answers $status)"
[[ $health_only ]] && finish 0 OK "$base: alive and ready"

good='' bad='' measures=''

try_path() { # name model path, further arguments for curl
    local name=$1 model=$2 path=$3
    shift 3
    [[ $model == - ]] && return
    ask "$path" "$@" < <(
        printf '%s\n' 'content-type: application/json' 'anthropic-version: 2023-06-01' "authorization: Bearer $key"
    )
    if [[ $status == 200 ]]; then
        good+=" $name"
    else
        bad+=" $name answers $status${request_id:+ ($request_id)},"
    fi
    measures+=" $name=${seconds}s"
}

question='"messages":[{"role":"user","content":"Say yes."}]'
if [[ $no_cost ]]; then
    try_path models all /v1/models
    try_path count "$messages_model" /v1/messages/count_tokens --data "{\"model\":\"$messages_model\",$question}"
else
    try_path chat "$chat_model" /v1/chat/completions \
        --data "{\"model\":\"$chat_model\",\"max_tokens\":16,$question}"
    try_path messages "$messages_model" /v1/messages \
        --data "{\"model\":\"$messages_model\",\"max_tokens\":16,$question}"
    try_path responses "$responses_model" /v1/responses \
        --data "{\"model\":\"$responses_model\",\"max_output_tokens\":16,\"store\":false,\"input\":\"Say yes.\"}"
fi

[[ $good || $bad ]] || unknown 'every format is skipped; --health-only asks for that'
[[ $bad ]] || finish 0 OK "$base: ready;$good answered |$measures"
[[ $good ]] || finish 2 CRITICAL "$base:${bad%,} |$measures"
finish 1 WARNING "$base:${bad%,};$good answered |$measures"
