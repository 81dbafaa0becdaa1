/**
 * OpenVINO's files to run models on a CPU, from its wheel on PyPI (its wheels for each Python hold
 * the same ones). The folder's name has the version, so that releases coexist.
 */
import { arch, platform } from 'node:os';
import path from 'node:path';
import { hashFile, statOrNull, whyUnsafeToRun } from '../models/cache-files.ts';
import type { WeightsFile } from '../models/manifest.ts';
import type { CpuRuntimeChoice, InstalledOpenvino } from '../models/prepared-model.ts';

export const OPENVINO_VERSION = '2026.4.1';

/** https://pypi.org/project/openvino/2026.4.1/#files */
export const OPENVINO_WHEEL = {
  project: 'openvino',
  name: 'openvino-2026.4.1-22982-cp311-cp311-manylinux_2_28_x86_64.whl',
  bytes: 59_130_756,
  sha256: '2d22b1da03f7caf74df30e9f6417d0ab2f637e4a38e08e1dcd294d2c37407aaf',
} as const;

/** Engines load this one; the others lie next to it. */
const OPENVINO_LIBRARY = 'libopenvino_c.so.2641';

export type InstalledFile = Pick<WeightsFile, 'name' | 'bytes' | 'sha256'>;

const LIBRARIES = 'openvino/libs';

/** Keys are paths in the wheel. */
export const OPENVINO_FILES: ReadonlyMap<string, InstalledFile> = new Map(
  [
    [
      'libopenvino.so.2641',
      20_526_937,
      '9b9a80ac1f18e07b13ed54459d9a865bcfe9dc170dbf8fe740c2974b85ecedc1',
    ],
    [OPENVINO_LIBRARY, 377_505, 'd2d0836d422b21fc5da2739af0d6035df3fc6dd5e4756402eb848974edecf8a5'],
    [
      'libopenvino_intel_cpu_plugin.so',
      63_691_929,
      '6599e3dd300d047b5ed72f8e48101c5f312c25321f35f57f803641ff8372900b',
    ],
    [
      'libopenvino_ir_frontend.so.2641',
      640_313,
      '554e9fd3d4a0fbc587c14379464b2324e24b8ea736cfb749ad2cd9e74dfc09e0',
    ],
    [
      'libopenvino_onnx_frontend.so.2641',
      6_827_321,
      '82d499f5b5e8514def7aaa1ecd5a9f570542d33ae9d00a0077f707cccd0e0192',
    ],
    ['libtbb.so.12', 369_313, 'ac9518497a4f2cb6729792730f145ee58367316031511923fef263c9ac81ca61'],
  ].map(([name, bytes, sha256]) => [
    `${LIBRARIES}/${name}`,
    { name, bytes, sha256 } as InstalledFile,
  ]),
);

export type OpenvinoState =
  | { readonly state: 'missing'; readonly folder: string }
  /** `reason` continues "OpenVINO in … ". */
  | { readonly state: 'unusable'; readonly folder: string; readonly reason: string }
  | { readonly state: 'installed'; readonly folder: string; readonly library: string };

/** Why OpenVINO does not run here, in one line. Undefined: it does. */
export function openvinoRefusal(): string | undefined {
  if (platform() !== 'linux' || arch() !== 'x64')
    return `it is for Linux on x64, not ${platform()} on ${arch()}`;
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime === undefined ? 'it needs the C library glibc' : undefined;
}

export function openvinoFolder(providerDir: string): string {
  return path.join(providerDir, `openvino-${OPENVINO_VERSION}-${platform()}-${arch()}`);
}

/** Checks the sizes, with `hashed` also the checksums, which takes a tenth of a second. */
export async function readOpenvino(
  providerDir: string,
  { hashed }: { readonly hashed: boolean },
): Promise<OpenvinoState> {
  const folder = openvinoFolder(providerDir);
  const unusable = (reason: string) => ({ state: 'unusable', folder, reason }) as const;
  try {
    if ((await statOrNull(folder)) === null) return { state: 'missing', folder };
    for (const { name, bytes, sha256 } of OPENVINO_FILES.values()) {
      const file = path.join(folder, name);
      if ((await statOrNull(file))?.size !== bytes) return unusable(`lacks a part of ${name}`);
      const foreign = await whyUnsafeToRun(file);
      if (foreign !== undefined) return unusable(foreign);
      if (hashed && (await hashFile(file)) !== sha256) return unusable(`has an altered ${name}`);
    }
  } catch (error) {
    return unusable(`cannot be read: ${(error as Error).message}`);
  }
  return { state: 'installed', folder, library: path.join(folder, OPENVINO_LIBRARY) };
}

/** OpenVINO, or in one line why there is none. Checks sizes alone. */
export async function findOpenvino(
  providerDir: string,
  wanted: CpuRuntimeChoice,
): Promise<InstalledOpenvino | string> {
  if (wanted === 'onnxruntime') return 'MATTING_CPU_RUNTIME is onnxruntime';
  const refusal = openvinoRefusal();
  if (refusal !== undefined) return refusal;
  const found = await readOpenvino(providerDir, { hashed: false });
  if (found.state === 'installed') return { version: OPENVINO_VERSION, library: found.library };
  const reason = found.state === 'missing' ? 'is not installed' : found.reason;
  return `OpenVINO in ${found.folder} ${reason}: "models fetch" installs it`;
}
