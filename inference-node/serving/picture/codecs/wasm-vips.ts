/**
 * libvips as WebAssembly, for what the prebuilt sharp lacks: JPEG XL, and ICC conversion in memory.
 * The only importer of wasm-vips. The first picture that needs it loads it: 90 ms and 45 MB (2
 * cores of an AMD EPYC). Its memory (at most 2 GB) never shrinks, and fragments: the pool replaces
 * a process that has grown large or whose instance aborted.
 */

import { ContractError } from '@matting/proto/contract/errors.ts';
import type Vips from 'wasm-vips';

/** Two threads halve the wait for the slowest format. */
const THREADS = 2;

let loading: Promise<typeof Vips> | undefined;
let aborted = false;

/** An instance aborted: the process must be replaced. */
export function isVipsPoisoned(): boolean {
  return aborted;
}

async function loadVips(): Promise<typeof Vips> {
  const { default: createVips } = await import('wasm-vips');
  const vips = await createVips({
    dynamicLibraries: ['vips-jxl.wasm'],
    // Keeps messages out of the node's log: errors are thrown as well.
    print: () => undefined,
    printErr: () => undefined,
    onAbort: noteAbort,
  });
  vips.operationBlock('VipsForeignLoad', true);
  vips.operationBlock('VipsForeignLoadJxl', false);
  vips.concurrency(THREADS);
  vips.Cache.max(0);
  return vips;
}

function noteAbort(): void {
  aborted = true;
  loading = undefined;
}

export function requireVips(): Promise<typeof Vips> {
  loading ??= loadVips();
  return loading;
}

/** Disposes of images, which would keep their memory until the next collection. */
export class Scratch {
  readonly #images: Vips.Image[] = [];

  keep(image: Vips.Image): Vips.Image {
    this.#images.push(image);
    return image;
  }

  [Symbol.dispose](): void {
    if (!aborted) for (const image of this.#images.splice(0)) image.delete();
  }
}

export function isTrap(error: unknown): boolean {
  return error instanceof Error && error.name === 'RuntimeError';
}

/** @throws ContractError NODE_INCAPABLE if memory is missing, else PROCESSING_FAILED */
export function attempt<Result>(work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (isTrap(error)) noteAbort();
    const message = error instanceof Error ? error.message : String(error);
    if (/out of memory/i.test(message)) {
      const detail = 'This node has too little memory for this image.';
      throw new ContractError('NODE_INCAPABLE', detail, { cause: error });
    }
    const detail = 'The image is damaged or cannot be processed.';
    throw new ContractError('PROCESSING_FAILED', detail, { cause: error });
  }
}
