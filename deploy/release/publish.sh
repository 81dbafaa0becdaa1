#!/bin/sh
# Pushes a release's images and its chart to a registry, each byte as it lies in the release:
#
#     sh deploy/release/publish.sh release/0.2.0 registry.example/team
#
# Images keep their names, tags and the digests of IMAGES; the chart goes to oci://REGISTRY/charts.
# Sign in before (skopeo login, helm registry login). It may be repeated. PLAIN_HTTP=1: without TLS.
set -eu
[ $# -eq 2 ] || { echo "usage: publish.sh RELEASE REGISTRY" >&2; exit 64; }
registry=$2
cd "$1"
sha256sum --check --quiet SHA256SUMS
if [ -n "${PLAIN_HTTP:-}" ]; then skopeo_plain=--dest-tls-verify=false helm_plain=--plain-http; fi

while read -r image digest; do
    name=${image##*/}
    archive=$(echo "$name" | tr : -).oci.tar
    skopeo copy --quiet --preserve-digests ${skopeo_plain:-} "oci-archive:$archive" "docker://$registry/$name"
    echo "$registry/$name@$digest"
done < IMAGES

helm push matting-[0-9]*.tgz "oci://$registry/charts" ${helm_plain:-}
