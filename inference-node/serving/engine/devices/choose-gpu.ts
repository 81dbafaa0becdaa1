import type { GpuFacts } from './list-gpus.ts';

export const DEVICE_FORM = /^(\d{1,3}|(GPU|MIG)-[0-9A-Za-z-]{1,80})$/;

interface DeviceChoice {
  /** Undefined: the driver does not list the named GPU, or CUDA_VISIBLE_DEVICES leaves none. */
  readonly gpu: GpuFacts | undefined;
  readonly visible: number;
}

/**
 * @param named MATTING_GPU_DEVICES
 * @param visible CUDA_VISIBLE_DEVICES; empty leaves none
 */
export function chooseDevice(
  named: string | undefined,
  listed: readonly GpuFacts[],
  visible: string | undefined,
): DeviceChoice {
  if (named !== undefined) return { gpu: find(named, listed), visible: 1 };
  if (visible === undefined) return { gpu: listed[0], visible: listed.length };
  const gpus = new Set<GpuFacts>();
  for (const name of visible.split(',')) {
    const gpu = find(name.trim(), listed);
    // As in CUDA, an unknown name ends the list.
    if (gpu === undefined) break;
    gpus.add(gpu);
  }
  const [first] = gpus;
  return { gpu: first, visible: gpus.size };
}

/** Accepts a shortened identifier, as CUDA does. */
function find(name: string, listed: readonly GpuFacts[]): GpuFacts | undefined {
  if (/^\d+$/.test(name)) return listed.find(({ index }) => index === Number(name));
  return listed.find(({ id }) => name.length > 4 && id.startsWith(name));
}
