/** Shared libraries of a few hundred bytes and packages of them, as the installer reads them. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { zipSync } from 'fflate';

const X86_64 = 62;
const HEADER_BYTES = 64;

/** A library that says it is linked with `needed`; nothing could load it. */
export function elfFile(needed: readonly string[], machine = X86_64): Buffer {
  const names = Buffer.from(`\0${needed.map(name => `${name}\0`).join('')}`);
  const dynamic = Buffer.alloc(16 * (needed.length + 1));
  let at = 1;
  for (const [index, name] of needed.entries()) {
    dynamic.writeBigUInt64LE(1n, 16 * index);
    dynamic.writeBigUInt64LE(BigInt(at), 16 * index + 8);
    at += name.length + 1;
  }
  const sections = Buffer.alloc(3 * HEADER_BYTES);
  const section = (index: number, type: number, offset: number, bytes: number, link: number) => {
    sections.writeUInt32LE(type, HEADER_BYTES * index + 4);
    sections.writeBigUInt64LE(BigInt(offset), HEADER_BYTES * index + 24);
    sections.writeBigUInt64LE(BigInt(bytes), HEADER_BYTES * index + 32);
    sections.writeUInt32LE(link, HEADER_BYTES * index + 40);
  };
  section(1, 6, HEADER_BYTES, dynamic.length, 2);
  section(2, 3, HEADER_BYTES + dynamic.length, names.length, 0);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(0x464c457f, 0);
  header.writeUInt16LE(0x0102, 4);
  header.writeUInt16LE(machine, 18);
  header.writeBigUInt64LE(BigInt(HEADER_BYTES + dynamic.length + names.length), 40);
  header.writeUInt16LE(HEADER_BYTES, 58);
  header.writeUInt16LE(3, 60);
  return Buffer.concat([header, dynamic, names, sections]);
}

export const CUDA_NEEDS = ['libcublas.so.13', 'libcuda.so.1', 'libstdc++.so.6'];

export const LIBRARIES: Readonly<Record<string, Buffer>> = {
  'libonnxruntime_providers_shared.so': elfFile(['libstdc++.so.6']),
  'libonnxruntime_providers_cuda.so': elfFile(CUDA_NEEDS),
  'libonnxruntime_providers_tensorrt.so': elfFile(['libnvinfer.so.10']),
};

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Every checksum of LIBRARIES. */
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

/** As an unpacked package of NuGet lies. */
export async function writeNugetFolder(folder: string, version: string): Promise<void> {
  const native = path.join(folder, 'runtimes/linux-x64/native');
  await mkdir(native, { recursive: true });
  const words = `<package><metadata><version>${version}</version></metadata></package>`;
  await writeFile(path.join(folder, 'Microsoft.ML.OnnxRuntime.Gpu.Linux.nuspec'), words);
  for (const [name, bytes] of Object.entries(LIBRARIES)) {
    await writeFile(path.join(native, name), bytes);
  }
}
