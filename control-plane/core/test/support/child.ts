/** Programs of tests in processes of their own, whose lines are kept until they are ended. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { TEST_TOKEN } from '@matting/nodes/test/scripted-node.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';

/** A program loads for four seconds of processor time, beside whatever else is tested. */
const STARTING_MS_MAX = 90_000;
const LOOK_MS = 10;

export class Child {
  readonly process: ChildProcess;
  readonly lines: string[] = [];

  /** @param file from this folder, or absolute */
  constructor(
    file: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
    nodeArgs: readonly string[] = [],
  ) {
    const program = path.resolve(import.meta.dirname, file);
    this.process = spawn(process.execPath, [...nodeArgs, program, ...args], {
      env: { ...STARTED_ENV, ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    createInterface(this.process.stdout!).on('line', line => this.lines.push(line));
  }

  /** @throws AssertionError the program ended or said nothing; it has ended then */
  async firstLine(): Promise<string> {
    const { process, lines } = this;
    try {
      const looksMax = STARTING_MS_MAX / LOOK_MS;
      for (let looks = 0; lines.length === 0; looks += 1) {
        assert.ok(process.exitCode === null && process.signalCode === null, 'it ended');
        assert.ok(looks < looksMax, 'it does not come up');
        await delay(LOOK_MS);
      }
    } catch (error) {
      // Open pipes of the child would keep the process of the tests alive.
      await this.end();
      throw error;
    }
    return lines[0]!;
  }

  async end(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await ended;
  }
}

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
