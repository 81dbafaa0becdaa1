/**
 * The NVIDIA GPUs of this machine, as the driver's command lists them. In this process a driver that
 * hangs would take the node with it.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

export interface GpuFacts {
  /** The id is GPU-… or MIG-…, as CUDA_VISIBLE_DEVICES takes it. It is stable over restarts. */
  readonly id: string;
  /** The index by which nvidia-smi counts, in the order of the bus. */
  readonly index: number;
  readonly name: string;
  readonly memoryBytes: number;
  readonly driver: string;
}

export type GpuListing =
  /**
   * The GPUs are in the order of the bus. `incomplete`: why there may be more, as behind a lost
   * GPU.
   */
  | { readonly state: 'listed'; readonly gpus: readonly GpuFacts[]; readonly incomplete?: string }
  | { readonly state: 'failed'; readonly reason: string }
  /** No driver: neither its command nor its device file. */
  | { readonly state: 'absent'; readonly reason: string };

/**
 * With eight GPUs and no persistence daemon the command takes 25 to 30 s (pull requests
 * Azure/aks-gpu 105, Azure/AgentBaker 2829); if it takes longer, the driver hangs.
 */
export const LISTING_MAX_MS = 60_000;
const SAID_BYTES_MAX = 1024 * 1024;
const SMI_COMMAND = 'nvidia-smi';
/** The driver makes this file, whatever commands a container has. */
const DRIVER_DEVICE = '/dev/nvidiactl';
/** Containers and WSL have the command in these folders, besides the PATH. */
const FURTHER_FOLDERS = ['/usr/bin', '/usr/local/nvidia/bin', '/usr/lib/wsl/lib'];
const FIELDS = 'index,uuid,name,memory.total,driver_version,mig.mode.current';
const QUERY = [`--query-gpu=${FIELDS}`, '--format=csv,noheader,nounits'];
const BYTES_PER_MIB = 1024 * 1024;
/** Drivers of today say so of a GPU that fell off the bus, list the others, and end with 0. */
const UNREACHABLE_LINE = /^Unable to determine the device handle/;
const MIG_LINE = /^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)/;
const GPU_LINE = /^GPU (\d+): /;

/** @param env as engines have it: its PATH is searched, and its LD_LIBRARY_PATH for the driver. */
export async function listGpus(env: Readonly<Record<string, string>>): Promise<GpuListing> {
  const said = await runSmi(QUERY, env);
  if (said.state === 'missing') {
    const reason = `there is no ${SMI_COMMAND}`;
    return { state: existsSync(DRIVER_DEVICE) ? 'failed' : 'absent', reason };
  }
  const rows = (said.text ?? '').split('\n').flatMap(line => parseRow(line) ?? []);
  if (said.state === 'failed' && rows.length === 0) return { state: 'failed', reason: said.reason };
  const asked = rows.some(({ mig }) => mig) ? await runSmi(['-L'], env) : undefined;
  const detailed = asked?.state === 'missing' ? undefined : asked;
  if (detailed?.state === 'failed' && detailed.text === undefined) {
    return { state: 'failed', reason: detailed.reason };
  }
  const tree = detailed?.text ?? '';
  const gpus = rows.flatMap(({ gpu, mig }) => (mig ? migDevices(gpu, tree) : [gpu]));
  const failure = [said, detailed].find(answer => answer?.state === 'failed');
  const incomplete = failure?.reason || (said.state === 'said' && said.unreachable);
  return { state: 'listed', gpus, ...(incomplete && { incomplete }) };
}

function parseRow(line: string): { gpu: GpuFacts; mig: boolean } | undefined {
  const [index, id, name, memoryMib, driver, mig] = line.split(',').map(text => text.trim());
  if (!id?.startsWith('GPU-') || name === undefined || driver === undefined) return undefined;
  // A GPU whose memory is the system's says so in words.
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
    // 1g.10gb: its gigabytes are in its name.
    const gigabytes = Number(/(\d+)gb/.exec(profile)?.[1] ?? 0);
    const name = `${gpu.name} MIG ${profile}`;
    found.push({ ...gpu, id, name, memoryBytes: gigabytes * 1024 ** 3 });
  }
  return found;
}

type Said =
  | { state: 'said'; text: string; unreachable: string }
  /** `text`: the output if the command ended by itself; undefined: it did not. */
  | { state: 'failed'; reason: string; text: string | undefined }
  | { state: 'missing'; text?: undefined };

/** Only where to look: the language of what it says must be the one that is read here. */
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

function runSmi(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Said> {
  return new Promise(resolve => {
    const failed = (reason: string, text?: string) => {
      const line = reason.replaceAll(/\s*\n\s*/g, ' ').trim();
      resolve({ state: 'failed', reason: line, text });
    };
    const options = {
      env: smiEnvironment(env),
      maxBuffer: SAID_BYTES_MAX,
      killSignal: 'SIGKILL',
      timeout: LISTING_MAX_MS,
    } as const;
    const child = execFile(SMI_COMMAND, [...args], options, (error, stdout, stderr) => {
      clearTimeout(timer);
      if (error === null) {
        const lines = `${stderr}\n${stdout}`.split('\n').map(line => line.trim());
        const unreachable = lines.filter(line => UNREACHABLE_LINE.test(line)).join(' ');
        return resolve({ state: 'said', text: stdout, unreachable });
      }
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return resolve({ state: 'missing' });
      // With a status of its own the output is whole; a command that was killed, or wrote too much,
      // is cut off anywhere.
      const whole = typeof code === 'number' ? stdout : undefined;
      failed(stderr || linesNotOfGpus(stdout) || error.message, whole);
    });
    // The listing does not wait for a command that does not die.
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
