/**
 * Control planes as processes of their own on one SQLite file, each at ports that it keeps over its
 * deaths, so that callers and nodes find it again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { findFreePorts } from '../../bin/free-ports.ts';
import { CHANNEL_ENV, STDIO_WITH_CHANNEL } from '../support/ipc-channel.ts';

const MAIN = path.resolve(import.meta.dirname, '../../control-plane/src/main.ts');

export class ReplicaProcess {
  readonly httpPort: number;
  readonly registryPort: number;
  /** When it was killed, by this process's clock. */
  readonly killedAtMs: number[] = [];
  readonly #env: Readonly<Record<string, string>>;
  #child: ChildProcess | undefined;
  #errors = '';

  private constructor(env: Readonly<Record<string, string>>, ports: readonly [number, number]) {
    [this.httpPort, this.registryPort] = ports;
    this.#env = {
      ...env,
      MATTING_PORT: String(this.httpPort),
      MATTING_REGISTRY_PORT: String(this.registryPort),
      MATTING_METRICS_PORT: '0',
    };
  }

  /** Resolves when it listens. */
  static async start(env: Readonly<Record<string, string>>): Promise<ReplicaProcess> {
    const replica = new ReplicaProcess(env, await findFreePorts(2));
    await replica.start();
    return replica;
  }

  async start(): Promise<void> {
    const env = { ...this.#env, ...CHANNEL_ENV };
    const child = spawn(process.execPath, [MAIN], { env, stdio: STDIO_WITH_CHANNEL });
    this.#child = child;
    child.stderr?.setEncoding('utf8').on('data', text => {
      this.#errors += text;
    });
    const lines = createInterface(child.stdout!);
    await new Promise<void>((resolve, reject) => {
      lines.on('line', line => {
        if (JSON.parse(line).msg === 'listening') resolve();
      });
      child.once('exit', () => reject(new Error(`a control plane ended: ${this.#errors}`)));
    });
  }

  /** As a machine's death, and back again. */
  async killAndRestart(): Promise<void> {
    this.killedAtMs.push(Date.now());
    await this.kill();
    await this.start();
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }
}
