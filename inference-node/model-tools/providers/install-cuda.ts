/**
 * Installs ONNX Runtime's part for NVIDIA's GPUs, which the npm package lacks, next to a copy of
 * the runtime, where npm does not remove it. It needs exactly our version of the runtime.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import path from 'node:path';
import { recordBytes } from '@matting/serving/models/cache-files.ts';
import {
  type InstalledRecord,
  installedFolder,
  PROVIDER_LIBRARIES,
  ProviderError,
  packageFolder,
  RECORD_FILE,
  RUNTIME_FILES,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import { filesIn, installWheel, type Wheel, type WheelInstall } from './install-wheel.ts';

/** The libraries fit the onnxruntime-node of the version in the name (docs/gpu.md). */
export const CUDA_WHEEL: Wheel = {
  project: 'onnxruntime-gpu',
  name: 'onnxruntime_gpu-1.30.0-cp312-cp312-manylinux_2_28_x86_64.whl',
  bytes: 246_685_715,
  sha256: '6acc0f4b3d5ac5f2984432faa59dd8fcce6775f8b43a7140afa0f322c7a703b1',
};

export async function installCuda(options: WheelInstall, wheel = CUDA_WHEEL): Promise<string> {
  if (platform() !== 'linux' || arch() !== 'x64') {
    throw new ProviderError(`ONNX Runtime has no CUDA provider for ${platform()} on ${arch()}`);
  }
  const folder = installedFolder(options.providerDir);
  await installWheel(wheel, folder, options, async bytes => {
    const files = filesIn(bytes, entry =>
      PROVIDER_LIBRARIES.find(name => name === path.posix.basename(entry)),
    );
    for (const name of RUNTIME_FILES) {
      files.set(name, await readFile(path.join(packageFolder(), name)));
    }
    return files.set(RECORD_FILE, recordBytes(recordOf(wheel, files)));
  });
  return folder;
}

function recordOf({ name: source }: Wheel, files: Map<string, Uint8Array>): InstalledRecord {
  const installed = [...files].map(([name, bytes]) => {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    return { name, bytes: bytes.length, sha256 };
  });
  return { runtimeVersion: runtimeVersion(), source, files: installed, libraryFolders: [] };
}
