/**
 * Published files that were looked at, by checksum: their libraries load into onnxruntime-node of
 * the same version (docs/gpu.md). Whoever brings another says which by its checksum.
 */

export interface KnownPackage {
  /** What PyPI calls it. */
  readonly wheel: string;
  readonly sha256: string;
  readonly bytes: number;
  /** sha256 of each library inside. */
  readonly libraries: readonly string[];
}

/** By version of onnxruntime-node. */
export const KNOWN_PACKAGES: Readonly<Record<string, KnownPackage>> = {
  '1.30.0': {
    wheel: 'onnxruntime_gpu-1.30.0-cp312-cp312-manylinux_2_28_x86_64.whl',
    sha256: '6acc0f4b3d5ac5f2984432faa59dd8fcce6775f8b43a7140afa0f322c7a703b1',
    bytes: 246_685_715,
    libraries: [
      '086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d',
      '35da2e7ed0dd0d1aec5cdb16ce11a51d06c0c48cf62d1b1c9332946a4fae14fc',
      '4365c6412845f42d7de138055ad3dcff5d0fbca2d748e30e8a04aa3ab0643337',
    ],
  },
};
