#!/usr/bin/env bash
# Installs the gateway as a systemd service, or brings an installation up to this source tree.
#
# Running it again is safe: the configuration and the secrets of an earlier run stay as they are.
# It neither starts nor restarts the service, and it writes no secret.
set -euo pipefail

usage() {
    cat <<'USAGE'
Usage: scripts/install.sh [--dry-run]

  --dry-run   say what would be done, change nothing
  DESTDIR     environment: install below this directory instead (for packages and trials);
              then no system user is made and systemd is left alone
  PYTHON      environment: the Python to build with (3.11 or newer)
  GATEWAY_EXTRAS
              environment: optional parts of the package, such as cluster for several replicas

Places: /opt/model-gateway (virtual environment), /etc/gateway (configuration, credentials),
        /etc/systemd/system/gateway*.{service,socket,timer}, /usr/local/bin/gateway (a link),
        /usr/local/share (manual page, completion of bash),
        /var/lib/gateway (state, made by systemd)
USAGE
}

dry_run=
for argument in "$@"; do
    case $argument in
        --dry-run) dry_run=yes ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 64 ;;
    esac
done

source_tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${DESTDIR:-}
dest=${dest%/}
extras=${GATEWAY_EXTRAS:+[$GATEWAY_EXTRAS]}
home=$dest/opt/model-gateway
etc=$dest/etc/gateway
units=$dest/etc/systemd/system

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

run() {
    if [[ $dry_run ]]; then
        printf 'would run:'
        printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# The service sees no home directory, so a Python that a version manager keeps in one cannot run it.
suits='
import ensurepip, os, sys, venv
at_home = os.path.realpath(sys.executable).startswith(("/home/", "/root/", "/run/user/"))
sys.exit(sys.version_info < (3, 11) or (at_home and not sys.argv[1]))
'

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 /usr/bin/python3}; do
        if "$candidate" -c "$suits" "$dest" 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

add_user() {
    if getent passwd gateway >/dev/null; then
        return
    fi
    say 'System user gateway'
    run useradd --system --user-group --home-dir /var/lib/gateway --no-create-home --shell /usr/sbin/nologin gateway
}

# Built from a copy: a build inside the tree leaves files there that later builds would pick up again.
add_package() {
    local python copy
    python=$(find_python) || fail 'needs Python 3.11 or newer with venv (Debian, Ubuntu: python3-venv), outside home directories'
    say "Virtual environment ${home#"$dest"} with $("$python" --version)"
    if ! "$home/bin/python" -m pip --version >/dev/null 2>&1; then
        run "$python" -m venv --clear "$home"
    fi
    say 'Package model-gateway (this can take a minute)'
    if [[ $dry_run ]]; then
        run "$home/bin/python" -m pip install "$source_tree$extras"
        return
    fi
    copy=$(mktemp -d)
    # shellcheck disable=SC2064  # the name is wanted as it is now
    trap "rm -rf '$copy'" EXIT
    cp -R "$source_tree"/{gateway,setup.py,setup.cfg,pyproject.toml,README.md,LICENSE} "$copy"
    find "$copy" -name __pycache__ -prune -exec rm -rf {} +
    # The copy has no history, which knows the commit.
    GATEWAY_COMMIT=$(cd "$source_tree" && "$home/bin/python" -c 'import gateway; print(gateway.commit() or "")') \
        "$home/bin/python" -m pip --disable-pip-version-check --no-input --quiet install "$copy$extras"
    if [[ $dest ]]; then
        # The scripts name their interpreter by its full path, which is another one after the move to /.
        grep -rlIF "#!$dest/" "$home/bin" | xargs -r sed -i "1s|^#!$dest/|#!/|"
    fi
}

add_configuration() {
    local owner=(--owner root --group gateway)
    if [[ $dest ]]; then
        owner=()
    fi
    say 'Configuration /etc/gateway'
    run install -d -m 0755 "$etc"
    run install -d -m 0700 "$etc/credentials"
    if [[ -e $etc/channels.yaml ]]; then
        say '  channels.yaml is there already and stays'
    else
        run install -m 0640 "${owner[@]}" "$source_tree/systemd/channels.yaml" "$etc/channels.yaml"
    fi
    run install -m 0644 "$source_tree/config/channels.yaml" "$etc/channels.example.yaml"
    run install -m 0644 "$source_tree/systemd/gateway.env.example" "$etc/gateway.env.example"
}

# So that `gateway` and `sudo -u gateway gateway …` are commands; another program of that name stays.
add_link() {
    local link=$dest/usr/local/bin/gateway target=${home#"$dest"}/bin/gateway
    if [[ -e $link || -L $link ]] && [[ $(readlink "$link") != "$target" ]]; then
        say "Command ${link#"$dest"} is another program and stays"
        return
    fi
    say "Command ${link#"$dest"}"
    run install -d -m 0755 "${link%/*}"
    run ln -sfn "$target" "$link"
}

# Both are made from the help texts of the commands.
add_help() {
    local share=$dest/usr/local/share
    say 'Manual page gateway(1), completion of bash'
    run install -d -m 0755 "$share/man/man1" "$share/bash-completion/completions"
    if [[ $dry_run ]]; then
        return
    fi
    "$home/bin/python" "$source_tree/scripts/reference" man >"$share/man/man1/gateway.1"
    "$home/bin/python" "$home/bin/gateway" completion bash >"$share/bash-completion/completions/gateway"
}

add_units() {
    local unit
    run install -d -m 0755 "$units"
    for unit in gateway.service gateway@.service gateway.socket gateway-replicas.socket gateway-backup.service gateway-backup.timer; do
        say "Unit $unit"
        run install -m 0644 "$source_tree/systemd/$unit" "$units/$unit"
    done
    if [[ -z $dest && -d /run/systemd/system ]] && command -v systemctl >/dev/null; then
        run systemctl daemon-reload
    fi
}

next_steps() {
    cat <<'STEPS'

Next:
  1. Secrets. One file per upstream credential, readable by root alone, never in a command line:
         install -m 0600 /dev/stdin /etc/gateway/credentials/chat-main      (paste, then Ctrl-D)
     channels.yaml names it  file:credential_chat-main
     Encrypted on disk (systemd 250 or newer):
         systemd-creds encrypt --name=chat-main - /etc/gateway/chat-main.cred
         systemctl edit gateway       [Service]  LoadCredentialEncrypted=chat-main:/etc/gateway/chat-main.cred
     and channels.yaml names it  file:chat-main
     Or as variables: copy gateway.env.example to /etc/gateway/gateway.env (0600); channels.yaml names them ${NAME}.
  2. Channels:    edit /etc/gateway/channels.yaml      (channels.example.yaml beside it shows every option)
  3. Start:       systemctl enable --now gateway.socket gateway
                  (after an update: systemctl restart gateway; connections wait in the socket meanwhile)
                  The socket listens on 127.0.0.1:8080, whatever channels.yaml says; without it,
                  systemctl enable --now gateway  uses the address of channels.yaml.
  4. First key:   sudo -u gateway gateway key mint --name first --state-dir /var/lib/gateway
  5. Backups:     systemctl enable --now gateway-backup.timer      (every night, in /var/lib/gateway/backups)
  6. Watch:       scripts/probe.sh --key-file FILE;  journalctl -u gateway
STEPS
}

umask 022
if [[ -z $dest && -z $dry_run && $EUID -ne 0 ]]; then
    fail 'run it as root, or set DESTDIR, or ask for --dry-run'
fi
if [[ -z $dest ]]; then
    add_user
fi
add_package
add_configuration
add_link
add_help
add_units
next_steps
