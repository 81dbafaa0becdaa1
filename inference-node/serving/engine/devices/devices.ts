/**
 * The NVIDIA GPUs of this machine: listed, chosen, lost and tried again. The driver's command lists
 * them: in this process a driver that hangs would take the node with it.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Logger } from 'pino';

export interface GpuFacts {
  /** GPU-… or MIG-…: what CUDA_VISIBLE_DEVICES takes. Stable over restarts. */
  readonly id: string;
  /** As nvidia-smi counts, by the bus. */
  readonly index: number;
  readonly name: string;
  readonly memoryBytes: number;
  readonly driver: string;
}

export type GpuListing =
  /** In the order of the bus. `incomplete`: why there may be more, as behind a GPU that is lost. */
  | { readonly state: 'listed'; readonly gpus: readonly GpuFacts[]; readonly incomplete?: string }
  | { readonly state: 'failed'; readonly reason: string }
  /** No driver: neither its command nor its device file. */
  | { readonly state: 'absent'; readonly reason: string };

/**
 * With eight GPUs and no persistence daemon it takes 25 to 30 s (pull requests Azure/aks-gpu 105,
 * Azure/AgentBaker 2829); longer is a driver that hangs.
 */
export const LISTING_MAX_MS = 60_000;
const SAID_BYTES_MAX = 1024 * 1024;
export const SMI_COMMAND = 'nvidia-smi';
/** Of the driver, whatever commands a container is given. */
const DRIVER_DEVICE = '/dev/nvidiactl';
/** Where containers and WSL have it, besides the PATH. */
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
  /** `text`: what it said before it ended by itself; undefined: it did not. */
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
      // Its own status is a number: what was killed, or said too much, is cut off anywhere.
      const whole = typeof code === 'number' ? stdout : undefined;
      failed(stderr || linesNotOfGpus(stdout) || error.message, whole);
    });
    // One that does not die is not waited for.
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

/** MATTING_GPU_DEVICES: `all`, or indices as nvidia-smi counts and identifiers. */
export type WantedDevices = 'all' | readonly string[];

export const DEVICE_FORM = /^(\d{1,3}|(GPU|MIG)-[0-9A-Za-z-]{1,80})$/;

type DeviceChoice =
  | { readonly gpus: readonly GpuFacts[] }
  /** What was named and is not there. */
  | { readonly missing: readonly string[] };

/**
 * What the driver lists and CUDA_VISIBLE_DEVICES leaves, where that is set: a scheduler gives a job
 * its GPUs by it; empty leaves none. Named ones as they are named, each once.
 */
export function chooseDevices(
  wanted: WantedDevices,
  listed: readonly GpuFacts[],
  visible: string | undefined,
): DeviceChoice {
  if (wanted !== 'all') return find(wanted, listed);
  if (visible === undefined) return { gpus: listed };
  // What CUDA does not know ends its list; so it does here.
  const names = visible.split(',').map(name => name.trim());
  const gpus: GpuFacts[] = [];
  for (const name of names) {
    const gpu = named(name, listed);
    if (gpu === undefined) break;
    if (!gpus.includes(gpu)) gpus.push(gpu);
  }
  return { gpus };
}

function find(wanted: readonly string[], listed: readonly GpuFacts[]): DeviceChoice {
  const missing = wanted.filter(name => named(name, listed) === undefined);
  if (missing.length > 0) return { missing };
  return { gpus: [...new Set(wanted.flatMap(name => named(name, listed) ?? []))] };
}

/** An identifier may be cut short, as CUDA takes it. */
function named(name: string, listed: readonly GpuFacts[]): GpuFacts | undefined {
  if (/^\d+$/.test(name)) return listed.find(({ index }) => index === Number(name));
  return listed.find(({ id }) => name.length > 4 && id.startsWith(name));
}

/** Of a GPU that says nothing of its memory. */
const MEMORY_BYTES_MIN = 1;

/** In proportion to memory: each next engine goes where it leaves the least load. */
export function spreadEngines<Device extends { readonly facts: GpuFacts }>(
  engines: number,
  devices: readonly Device[],
): Device[] {
  const places = devices.map(device => ({ device, given: 0 }));
  const loadOf = ({ device: { facts }, given }: (typeof places)[number]) =>
    (given + 1) / Math.max(MEMORY_BYTES_MIN, facts.memoryBytes);
  return Array.from({ length: engines }).flatMap(() => {
    const [place] = places.toSorted((one, other) => loadOf(one) - loadOf(other));
    if (place === undefined) return [];
    place.given += 1;
    return [place.device];
  });
}

/* Up or out; what is out takes the engines on it down, in every pool, and no other. */

export class GpuDevice {
  readonly facts: GpuFacts;
  readonly opening = new OpeningMutex();
  readonly #listeners = new Set<() => void>();
  #outReason: string | undefined;

  constructor(facts: GpuFacts) {
    this.facts = facts;
  }

  /** Why it is out, in one line; undefined: it is up. */
  get outReason(): string | undefined {
    return this.#outReason;
  }

  /** Engines see this GPU alone, as CUDA's device 0, whatever CUDA's own order is. */
  envOf(childEnv: Readonly<Record<string, string>>): Record<string, string> {
    return { ...childEnv, CUDA_VISIBLE_DEVICES: this.facts.id };
  }

  lose(reason: string): void {
    if (this.#outReason !== undefined) return;
    this.#outReason = reason;
    this.#changed();
  }

  restore(): void {
    if (this.#outReason === undefined) return;
    this.#outReason = undefined;
    this.#changed();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Those who listen: a pool that is closed is none of them. */
  get listenerCount(): number {
    return this.#listeners.size;
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * TensorRT chooses kernels by timing them while it builds, so engines of a GPU open one by one.
 * CUDA times nothing: with cuDNN 9 its search is a question to heuristics.
 */
export class OpeningMutex {
  #holder: object | undefined;
  readonly #waiting: { readonly who: object; readonly begin: () => void }[] = [];

  /** `begin` is called once, now or when those before have left; never after `leave(who)`. */
  take(who: object, begin: () => void): void {
    this.leave(who);
    this.#waiting.push({ who, begin });
    this.#next();
  }

  leave(who: object): void {
    const index = this.#waiting.findIndex(waiting => waiting.who === who);
    if (index !== -1) this.#waiting.splice(index, 1);
    if (this.#holder !== who) return;
    this.#holder = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#holder !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#holder = next.who;
    next.begin();
  }
}

/** After a reset a GPU is back in seconds; without one it never is. The last one repeats. */
const RETRY_DELAYS_MS: readonly [number, ...number[]] = [60_000, 120_000, 300_000, 600_000];

interface DeviceWatchOptions {
  readonly devices: readonly GpuDevice[];
  /** Runs something on the GPU. Undefined: it runs; else, or rejecting, why not, in one line. */
  readonly attempt: (device: GpuDevice) => Promise<string | undefined>;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly retryDelaysMs?: readonly [number, ...number[]];
}

export class DeviceWatch {
  readonly #options: DeviceWatchOptions;
  readonly #timers = new Map<GpuDevice, NodeJS.Timeout>();
  readonly #attempts = new Map<GpuDevice, number>();
  readonly #unsubscribe: (() => void)[] = [];
  #closed = false;

  constructor(options: DeviceWatchOptions) {
    this.#options = options;
    for (const device of options.devices) {
      this.#unsubscribe.push(device.onChange(() => this.#onChange(device)));
      if (device.outReason !== undefined) this.#onChange(device);
    }
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
  }

  #onChange(device: GpuDevice): void {
    const { outReason: reason, facts } = device;
    const { log } = this.#options;
    if (reason === undefined) {
      log.info({ gpu: facts.id, name: facts.name }, 'GPU is back');
      return;
    }
    log.error({ gpu: facts.id, name: facts.name, reason }, 'GPU is out: its engines end');
    this.#retryLater(device);
  }

  #retryLater(device: GpuDevice): void {
    if (this.#closed) return;
    const delays = this.#options.retryDelaysMs ?? RETRY_DELAYS_MS;
    const tried = this.#attempts.get(device) ?? 0;
    this.#attempts.set(device, tried + 1);
    const delayMs = delays[Math.min(tried, delays.length - 1)] ?? delays[0];
    clearTimeout(this.#timers.get(device));
    const timer = setTimeout(() => void this.#retry(device), delayMs);
    this.#timers.set(device, timer.unref());
  }

  async #retry(device: GpuDevice): Promise<void> {
    // A disk that is full, or a node that ends, fails no node.
    const reason = await this.#options
      .attempt(device)
      .catch((error: Error) => `it cannot be tried: ${error.message}`);
    if (this.#closed) return;
    if (reason === undefined) {
      device.restore();
      return;
    }
    this.#options.log.warn({ gpu: device.facts.id, reason }, 'GPU stays out');
    this.#retryLater(device);
  }
}
