/** Shared libraries of a few bytes and packages of them, as the installer reads them. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { zipSync } from 'fflate';

const X86_64 = 62;

/** A library by its first bytes; nothing could load it. */
export function elfFile(text: string, machine = X86_64): Buffer {
  const header = Buffer.alloc(64);
  header.writeUInt32LE(0x464c457f, 0);
  header.writeUInt16LE(0x0102, 4);
  header.writeUInt16LE(machine, 18);
  return Buffer.concat([header, Buffer.from(text)]);
}

export const LIBRARIES: Readonly<Record<string, Buffer>> = {
  'libonnxruntime_providers_shared.so': elfFile('shared'),
  'libonnxruntime_providers_cuda.so': elfFile('cuda'),
};

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

export const CHECKSUMS = Object.values(LIBRARIES).map(sha256);

export function wheelFile(version: string, libraries = LIBRARIES): Buffer {
  const entries: Record<string, Uint8Array> = {
    'onnxruntime/capi/onnxruntime_pybind11_state.so': Buffer.from('of no interest'),
    'onnxruntime_gpu.dist-info/METADATA': Buffer.from(
      `Name: onnxruntime-gpu\nVersion: ${version}\n`,
    ),
  };
  for (const [name, bytes] of Object.entries(libraries))
    entries[`onnxruntime/capi/${name}`] = bytes;
  return Buffer.from(zipSync(entries));
}

export async function writeNugetFolder(folder: string, version: string): Promise<void> {
  const native = path.join(folder, 'runtimes/linux-x64/native');
  await mkdir(native, { recursive: true });
  const words = `<package><metadata><version>${version}</version></metadata></package>`;
  await writeFile(path.join(folder, 'Microsoft.ML.OnnxRuntime.Gpu.Linux.nuspec'), words);
  for (const [name, bytes] of Object.entries(LIBRARIES)) {
    await writeFile(path.join(native, name), bytes);
  }
}
