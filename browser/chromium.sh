#!/bin/sh
# Prints the path of a Chromium: CHROMIUM, or the one that is installed. Root
# installs Debian's package if there is none.
set -eu

find_chromium() {
	for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
		[ -n "$name" ] && command -v "$name" && return 0
	done
	return 1
}

find_chromium && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "Installing Chromium with apt-get." >&2
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-liberation; } >/dev/null 2>&1 || true
	find_chromium && exit 0
fi
echo "The browser tests need Chromium: install it, or set CHROMIUM to its path." >&2
exit 1
