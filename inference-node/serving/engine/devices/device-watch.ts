/** Watches the GPUs of a node: tries one that is out again, later each time. */
import type { Logger } from 'pino';
import type { GpuDevice } from './gpu-device.ts';

/** After a reset a GPU is back in seconds; without one it never is. The last one repeats. */
export const RETRY_DELAYS_MS: readonly [number, ...number[]] = [60_000, 120_000, 300_000, 600_000];

export interface DeviceWatchOptions {
  readonly devices: readonly GpuDevice[];
  /** Runs something on the GPU. Undefined: it runs; else, or rejecting, why not, in one line. */
  readonly attempt: (device: GpuDevice) => Promise<string | undefined>;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** RETRY_DELAYS_MS where absent. */
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
