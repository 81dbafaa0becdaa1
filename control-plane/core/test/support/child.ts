/** Programs of this room in processes of their own, whose lines are kept until they are ended. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { until } from '../harness.ts';
import { TEST_TOKEN } from '../scripted-node.ts';

export interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

export class Child {
  readonly process: ChildProcess;
  readonly lines: string[] = [];

  constructor(
    file: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
    nodeArgs: readonly string[] = [],
  ) {
    const program = path.join(import.meta.dirname, file);
    this.process = spawn(process.execPath, [...nodeArgs, program, ...args], {
      env: { PATH: process.env.PATH, ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    createInterface(this.process.stdout!).on('line', line => this.lines.push(line));
  }

  async firstLine(): Promise<string> {
    await until(() => this.lines.length > 0 || this.process.exitCode !== null, 'a line');
    const [first] = this.lines;
    assert.ok(first !== undefined, 'it ended before it was up');
    return first;
  }

  async end(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await ended;
  }
}

/** A control plane with short leases. */
export class ReplicaChild extends Child {
  ports!: Ports;

  /** Resolves when it listens. */
  static async start(
    env: NodeJS.ProcessEnv,
    { name = 'replica', leaseMs = 3000, renewMs = 300, nodeArgs = [] as string[] } = {},
  ): Promise<ReplicaChild> {
    const args = [name, String(leaseMs), String(renewMs)];
    const child = new ReplicaChild('replica-process.ts', args, env, nodeArgs);
    child.ports = JSON.parse(await child.firstLine());
    return child;
  }
}

/** What every control plane of these tests is opened with. */
export function planeEnv(directory: string, databaseUrl: string) {
  return {
    MATTING_DATA_DIR: directory,
    MATTING_DATABASE_URL: databaseUrl,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://links.example',
    MATTING_NODE_TOKEN: TEST_TOKEN,
  };
}
