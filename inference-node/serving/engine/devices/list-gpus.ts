/** Lists NVIDIA GPUs by the driver's command: a driver that hangs here would stop the node. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

export interface GpuFacts {
  /** GPU-… or MIG-…, as CUDA_VISIBLE_DEVICES takes it. Stable over restarts. */
  readonly id: string;
  readonly index: number;
  readonly name: string;
  readonly memoryBytes: number;
  readonly driver: string;
}

export type GpuListing =
  /** In bus order. `incomplete`: why GPUs may be missing, such as after a lost one. */
  | { readonly state: 'listed'; readonly gpus: readonly GpuFacts[]; readonly incomplete?: string }
  | { readonly state: 'failed'; readonly reason: string }
  /** Neither the driver's command nor its device file exists. */
  | { readonly state: 'absent'; readonly reason: string };

/**
 * With eight GPUs and no persistence daemon the command takes 25 to 30 s (pull requests
 * Azure/aks-gpu 105, Azure/AgentBaker 2829).
 */
export const LISTING_MAX_MS = 60_000;
const SMI_OUTPUT_BYTES_MAX = 1024 * 1024;
const SMI_COMMAND = 'nvidia-smi';
const DRIVER_DEVICE = '/dev/nvidiactl';
const FURTHER_FOLDERS = ['/usr/bin', '/usr/local/nvidia/bin', '/usr/lib/wsl/lib'];
const FIELDS = 'index,uuid,name,memory.total,driver_version,mig.mode.current';
const QUERY = [`--query-gpu=${FIELDS}`, '--format=csv,noheader,nounits'];
const BYTES_PER_MIB = 1024 * 1024;
/** Current drivers print this for a GPU that fell off the bus, list the others, and exit with 0. */
const UNREACHABLE_LINE = /^Unable to determine the device handle/;
const MIG_LINE = /^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)/;
const GPU_LINE = /^GPU (\d+): /;

export async function listGpus(env: Readonly<Record<string, string>>): Promise<GpuListing> {
  const query = await runSmi(QUERY, env);
  if (query.state === 'missing') {
    const reason = `there is no ${SMI_COMMAND}`;
    return { state: existsSync(DRIVER_DEVICE) ? 'failed' : 'absent', reason };
  }
  const rows = (query.text ?? '').split('\n').flatMap(line => parseRow(line) ?? []);
  if (query.state === 'failed' && rows.length === 0)
    return { state: 'failed', reason: query.reason };
  const listing = rows.some(({ mig }) => mig) ? await runSmi(['-L'], env) : undefined;
  const detailed = listing?.state === 'missing' ? undefined : listing;
  if (detailed?.state === 'failed' && detailed.text === undefined) {
    return { state: 'failed', reason: detailed.reason };
  }
  const tree = detailed?.text ?? '';
  const gpus = rows.flatMap(({ gpu, mig }) => (mig ? migDevices(gpu, tree) : [gpu]));
  const failure = [query, detailed].find(answer => answer?.state === 'failed');
  const incomplete = failure?.reason || (query.state === 'ended' && query.unreachable);
  return { state: 'listed', gpus, ...(incomplete && { incomplete }) };
}

function parseRow(line: string): { gpu: GpuFacts; mig: boolean } | undefined {
  const [index, id, name, memoryMib, driver, mig] = line.split(',').map(text => text.trim());
  if (!id?.startsWith('GPU-') || name === undefined || driver === undefined) return undefined;
  // For a GPU that shares the system's memory the driver prints text here.
  const memoryBytes = (Number(memoryMib) || 0) * BYTES_PER_MIB;
  const gpu = { id, index: Number(index), name, memoryBytes, driver };
  return { gpu, mig: mig === 'Enabled' };
}

function migDevices(gpu: GpuFacts, listing: string): GpuFacts[] {
  const found: GpuFacts[] = [];
  let index: number | undefined;
  for (const line of listing.split('\n')) {
    index = Number(GPU_LINE.exec(line)?.[1] ?? index);
    const [, profile, id] = MIG_LINE.exec(line) ?? [];
    if (index !== gpu.index || profile === undefined || id === undefined) continue;
    // The profile's name states the gigabytes: 1g.10gb.
    const gigabytes = Number(/(\d+)gb/.exec(profile)?.[1] ?? 0);
    const name = `${gpu.name} MIG ${profile}`;
    found.push({ ...gpu, id, name, memoryBytes: gigabytes * 1024 ** 3 });
  }
  return found;
}

type SmiAnswer =
  | { state: 'ended'; text: string; unreachable: string }
  /** `text`: the whole output if the command ended by itself. */
  | { state: 'failed'; reason: string; text: string | undefined }
  | { state: 'missing'; text?: undefined };

/** Search paths, and a fixed language so that the output can be parsed. */
export function smiEnvironment({
  PATH = '',
  LD_LIBRARY_PATH,
}: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return {
    PATH: [PATH, ...FURTHER_FOLDERS].join(path.delimiter),
    LC_ALL: 'C',
    ...(LD_LIBRARY_PATH !== undefined && { LD_LIBRARY_PATH }),
  };
}

function runSmi(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<SmiAnswer> {
  return new Promise(resolve => {
    const failed = (reason: string, text?: string) => {
      const line = reason.replaceAll(/\s*\n\s*/g, ' ').trim();
      resolve({ state: 'failed', reason: line, text });
    };
    const options = {
      env: smiEnvironment(env),
      maxBuffer: SMI_OUTPUT_BYTES_MAX,
      killSignal: 'SIGKILL',
      timeout: LISTING_MAX_MS,
    } as const;
    const child = execFile(SMI_COMMAND, [...args], options, (error, stdout, stderr) => {
      clearTimeout(timer);
      if (error === null) {
        const lines = `${stderr}\n${stdout}`.split('\n').map(line => line.trim());
        const unreachable = lines.filter(line => UNREACHABLE_LINE.test(line)).join(' ');
        return resolve({ state: 'ended', text: stdout, unreachable });
      }
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return resolve({ state: 'missing' });
      // The output is whole after an exit. A kill, or too much output, cuts it off anywhere.
      const whole = typeof code === 'number' ? stdout : undefined;
      failed(stderr || linesNotOfGpus(stdout) || error.message, whole);
    });
    // Does not wait for a command that survives its kill.
    const timer = setTimeout(() => {
      child.unref();
      failed(`${SMI_COMMAND} does not answer within ${LISTING_MAX_MS} ms`);
    }, LISTING_MAX_MS + 1000);
  });
}

function linesNotOfGpus(text: string): string {
  const lines = text.split('\n');
  return lines
    .filter(line => parseRow(line) === undefined && !/^(GPU \d|\s+MIG )/.test(line))
    .join('\n');
}
