/** Which of a host's GPUs this node takes, and how many engines each gets. Pure. */
import type { GpuFacts } from './nvidia-smi.ts';

/** MATTING_GPU_DEVICES: `all`, or indices as nvidia-smi counts and identifiers. */
export type WantedDevices = 'all' | readonly string[];

export const DEVICE_FORM = /^(\d{1,3}|(GPU|MIG)-[0-9A-Za-z-]{1,80})$/;

export type DeviceChoice =
  | { readonly gpus: readonly GpuFacts[] }
  /** What was named and is not there. */
  | { readonly missing: readonly string[] };

/**
 * `all` is what the driver lists, of it what CUDA_VISIBLE_DEVICES leaves, where that is set: a
 * scheduler gives a job its GPUs by it. Set and empty it leaves none, as to CUDA. Named ones are
 * taken as they are named, each once.
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
const WEIGHT_MIN = 1e-9;

/** What says how many engines a GPU gets beside others. */
export interface DeviceShare {
  /** Memory, or measured speed. */
  readonly weight: number;
  /** More only where every other GPU has as many as it takes too. */
  readonly enginesMax: number;
}

/**
 * The GPU of each of `engines`, in proportion to the weights: each next engine goes where it leaves
 * the least load. Every GPU gets one before any gets a second only where they are alike enough.
 */
export function spreadEngines<Device>(
  engines: number,
  devices: readonly Device[],
  shareOf: (device: Device) => DeviceShare,
): Device[] {
  const places = devices.map(device => ({ device, given: 0, ...shareOf(device) }));
  type Place = (typeof places)[number];
  const loadOf = ({ given, weight }: Place) => (given + 1) / Math.max(WEIGHT_MIN, weight);
  const placed: Device[] = [];
  for (let i = 0; i < engines; i++) {
    const free = places.filter(({ given, enginesMax }) => given < enginesMax);
    const among = free.length > 0 ? free : places;
    const [place] = among.toSorted((one, other) => loadOf(one) - loadOf(other));
    if (place === undefined) break;
    place.given += 1;
    placed.push(place.device);
  }
  return placed;
}
