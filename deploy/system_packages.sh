#!/bin/sh
# Install what is missing of the system packages named as arguments, with Debian's apt, when this user may; otherwise say
# what to install and go on: the tests that need it then say so themselves.
set -u

present() {
    case "$1" in
        chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
        nginx) command -v nginx || [ -x /usr/sbin/nginx ] ;;
        fonts-noto-cjk) fc-list 2>/dev/null | grep -qi "cjk" ;;
        python3-venv) "${PYTHON:-python3}" -c 'import ensurepip' ;;
        *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

package() {
    case "$1" in
        nginx) echo nginx-light ;;
        fonts-noto-cjk) echo "fonts-noto-cjk fontconfig" ;;
        *) echo "$1" ;;
    esac
}

missing=""
for wanted in "$@"; do
    present "$wanted" || missing="$missing $(package "$wanted")"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing with apt:$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null 2>&1
    # shellcheck disable=SC2086
    if apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1; then
        exit 0
    fi
    echo "apt could not install:$missing" >&2
else
    echo "Please install (Debian names):$missing   e.g. sudo apt-get install --no-install-recommends$missing" >&2
fi
exit 0
