/**
 * Classes of CPU. Quantised graphs need CPUs that multiply bytes in one instruction (VNNI,
 * DOTPROD), and several kinds of CPU may share a cache, so names of files have the class.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { arch, platform } from 'node:os';

/** From the most capable to the least; the first with all its flags applies. */
const X64_CLASSES: readonly (readonly [name: string, ...flags: string[]])[] = [
  ['x64-amx-int8', 'amx_int8', 'avx512_vnni'],
  ['x64-avx512-vnni', 'avx512f', 'avx512_vnni'],
  ['x64-avx2-vnni', 'avx2', 'avx_vnni'],
  ['x64-avx512', 'avx512f', 'avx512bw'],
  ['x64-avx2', 'avx2', 'fma'],
];

const ARM64_CLASSES: readonly (readonly [name: string, ...flags: string[]])[] = [
  ['arm64-neon-i8mm', 'asimddp', 'i8mm'],
  ['arm64-neon-dotprod', 'asimddp'],
];

export function classifyInstructionSet(
  architecture: string,
  operatingSystem: string,
  cpuInfo: string,
): string {
  const flags = new Set(flagsIn(cpuInfo));
  const first = (classes: typeof X64_CLASSES) =>
    classes.find(([, ...wanted]) => wanted.every(flag => flags.has(flag)))?.[0];
  if (architecture === 'x64') return first(X64_CLASSES) ?? 'x64-base';
  if (architecture === 'arm64') {
    // All of Apple's own CPUs have DOTPROD, and macOS has no /proc.
    const base = operatingSystem === 'darwin' ? 'arm64-neon-dotprod' : 'arm64-neon';
    return first(ARM64_CLASSES) ?? base;
  }
  return architecture;
}

function flagsIn(cpuInfo: string): string[] {
  const line = cpuInfo.match(/^(?:flags|Features)\s*:(.*)$/m)?.[1] ?? '';
  return line.trim().split(/\s+/);
}

/** Vector instructions. Other flags change with the Linux kernel. */
const VECTOR_FLAG = /^(?:s?sse|avx|amx|fma|f16c|asimd|sve|sme|i8mm|bf16)/;
const DIGEST_DIGITS = 8;

/** Digests the instructions, since hypervisors mask some and keep the processor's name. */
export function digestInstructions(cpuInfo = readCpuInfo()): string {
  const flags = flagsIn(cpuInfo).filter(flag => VECTOR_FLAG.test(flag));
  const digest = createHash('sha256').update(flags.sort().join(' ')).digest('hex');
  return digest.slice(0, DIGEST_DIGITS);
}

/** Classes that multiply bytes and add the products in 32 bits, in one instruction. */
const INT8_CLASSES: ReadonlySet<string> = new Set([
  'x64-amx-int8',
  'x64-avx512-vnni',
  'x64-avx2-vnni',
  'arm64-neon-i8mm',
  'arm64-neon-dotprod',
]);

/** Others are no faster with int8, and on x64 their sums of two products saturate at 16 bits. */
export function carriesInt8(instructionSet: string): boolean {
  return INT8_CLASSES.has(instructionSet);
}

export async function detectInstructionSet(): Promise<string> {
  return classifyInstructionSet(arch(), platform(), readCpuInfo());
}

function readCpuInfo(): string {
  return platform() === 'linux' ? readFileSync('/proc/cpuinfo', 'utf8') : '';
}
