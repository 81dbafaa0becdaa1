#!/bin/sh
# Fetches Mesa's software adapter for Vulkan (MIT), on which `make test-webgpu` runs, from Debian's packages once per
# machine, and prints the directory it lies in. It is unpacked, not installed: nothing else on the machine sees it. Fails,
# and says why, where it cannot. Debian 12's own Mesa is too old for ONNX Runtime's WebGPU; its backports are not.
set -eu
fail() {
  echo "no software adapter for Vulkan: $1" >&2
  exit 1
}
directory=${XDG_CACHE_HOME:-$HOME/.cache}/matting-test-tools/mesa
if [ ! -e "$directory/lvp_icd.json" ]; then
  command -v apt-get >/dev/null || fail 'no apt-get here'
  command -v dpkg >/dev/null || fail 'no dpkg here'
  # shellcheck source=/dev/null
  . /etc/os-release
  suite=${VERSION_CODENAME:-}
  [ "${ID:-}" = debian ] && [ -n "$suite" ] || fail 'this is not Debian'
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
  for from in "$suite" "$suite-backports"; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $from main"
  done >"$work/sources.list"
  apt() {
    timeout 300 apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
      -o Dir::Cache="$work/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" >&2
  }
  { apt update && apt install -y --no-install-recommends --download-only -t "$suite-backports" \
    mesa-vulkan-drivers libvulkan1; } || fail 'its packages could not be fetched'
  for package in "$work"/cache/archives/*.deb; do
    dpkg -x "$package" "$work/root"
  done
  driver=$(find "$work/root" -name libvulkan_lvp.so -print -quit)
  [ -n "$driver" ] || fail 'the packages have no libvulkan_lvp.so'
  mkdir -p "$directory"
  cp -a "$(dirname "$driver")/." "$directory/"
  # Last, as what says that all of it is there.
  printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.3.0"}}\n' \
    "$directory/libvulkan_lvp.so" >"$work/lvp_icd.json"
  mv "$work/lvp_icd.json" "$directory/lvp_icd.json"
fi
echo "$directory"
