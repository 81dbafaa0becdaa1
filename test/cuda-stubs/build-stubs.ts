/** Builds stand-ins for CUDA's and cuDNN's libraries from this folder. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';

interface Stub {
  readonly library: string;
  readonly source?: string;
  readonly flags?: readonly string[];
  /** Symbols carry the library's name as version, as NVIDIA's do. */
  readonly versioned?: boolean;
}

const STUBS: readonly Stub[] = [
  { library: 'libcudart.so.13', source: 'cudart.c', versioned: true },
  { library: 'libcublas.so.13', source: 'cublas.c', versioned: true },
  { library: 'libcublasLt.so.13', source: 'cublas.c', flags: ['-DLT'], versioned: true },
  { library: 'libcurand.so.10' },
  { library: 'libcuda.so.1', source: 'cuda.c' },
  { library: 'libcudnn.so.9', source: 'cudnn.c' },
];

/** @returns why they cannot be built; undefined: built */
export function buildStubs(folder: string): string | undefined {
  for (const { library, source, flags = [], versioned } of STUBS) {
    const args = ['-shared', '-fPIC', '-O1', '-w', `-Wl,-soname,${library}`, ...flags];
    if (versioned) {
      const script = path.join(folder, `${library}.versions`);
      writeFileSync(script, `${library} { global: *; };\n`);
      args.push(`-Wl,--version-script=${script}`);
    }
    const sources =
      source === undefined ? ['-x', 'c', '/dev/null'] : [path.join(import.meta.dirname, source)];
    try {
      execFileSync('cc', [...args, '-o', path.join(folder, library), ...sources], {
        stdio: 'pipe',
      });
    } catch (error) {
      return `cc cannot build ${library}: ${(error as Error).message.split('\n')[0]}`;
    }
  }
  return undefined;
}
