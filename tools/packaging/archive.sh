#!/usr/bin/env bash
# Packs a release: `tools/packaging/archive.sh BINARIES OUT` writes OUT/canonc-VERSION-x86_64-linux.tar.gz and its sha256.
#
# BINARIES is the folder that tools/packaging/binaries.sh prints. The archive has the programs, documentation, manual
# pages, shell completions and licences. The same programs and commit give the same bytes, whoever packs them, when and
# where.
set -euo pipefail
binaries="$(cd "${1:?a folder with programs}" && pwd)"
mkdir -p "$2"
out="$(cd "$2" && pwd)"
cd "$(dirname "$0")/../.."
epoch="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export LC_ALL=C TZ=UTC
canonc="$binaries/canonc"
version="$("$canonc" --version | cut -d' ' -f2)"
name="canonc-$version-$(uname -m)-linux"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/$name"
mkdir -p "$root/bin" "$root/share/man/man1" "$root/share/completions"
for program in canonc canonc-torch libcanonc_nccl.so; do
  # Without libtorch there is only the first.
  [ "$program" != canonc ] && [ ! -e "$binaries/$program" ] && continue
  install -m 755 "$binaries/$program" "$root/bin/$program"
done
cp README.md LICENSE NOTICE "$root"
# Not what else is in the folder of whoever packs.
git ls-files -z docs | xargs --null cp --parents --target-directory "$root"
mkdir -p "$root/dsl" "$root/recipes"
cp dsl/LANGUAGE.md "$root/dsl"
cp recipes/README.md recipes/AUDIT.md "$root/recipes"
python3 tools/packaging/licences.py > "$root/THIRD-PARTY.txt"
"$canonc" --quiet man "$root/share/man/man1" > /dev/null
for shell in bash zsh fish; do
  "$canonc" completions "$shell" > "$root/share/completions/canonc.$shell"
done
chmod -R u=rwX,go=rX "$root"
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --format=ustar "$name" |
  gzip --no-name --best > "$work/$name.tar.gz"
mv "$work/$name.tar.gz" "$out"
cd "$out"
sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256"
