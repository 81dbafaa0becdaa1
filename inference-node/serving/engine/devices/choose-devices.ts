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
const MEMORY_BYTES_MIN = 1;

/**
 * The GPU of each of `engines`, in proportion to memory: each next engine goes where it leaves the
 * least load. Every GPU gets one before any gets a second only where they are alike enough.
 */
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
