/** One public port in a process of its own, for forms.soak.ts, and what it has left. */
import { readdir } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { openTestApp } from '../../control-plane/test/support/test-app.ts';

export interface FormPort {
  readonly rest: number;
  readonly token: string;
}

export interface FormPortState {
  readonly residentBytes: number;
  readonly uploads: number;
  readonly waiting: number;
  /** Jobs that were made, and files of pictures. */
  readonly jobs: number;
  readonly files: number;
  /** Files that are being written, or were left behind. */
  readonly unfinished: number;
  /** Of the process: listeners that were forgotten, for one. */
  readonly warnings: readonly string[];
}

const MANY = 1_000_000_000;
const app = await openTestApp({
  credits: MANY,
  jobsInFlightMax: MANY,
  submissionsPerMinute: MANY,
});
await app.app.listen({ port: 0, host: '127.0.0.1' });
const warnings: string[] = [];
process.on('warning', ({ name, message }) => warnings.push(`${name}: ${message}`));
let jobs = 0;
app.events.onSubmitted(() => {
  jobs += 1;
});

async function filesIn(folder: string): Promise<number> {
  return (await readdir(path.join(app.storageDir, folder))).length;
}

async function state(): Promise<FormPortState> {
  const { open: uploads, waiting } = app.services.uploads;
  const [files, unfinished] = await Promise.all([filesIn('inputs'), filesIn('tmp')]);
  const residentBytes = process.memoryUsage().rss;
  return { residentBytes, uploads, waiting, jobs, files, unfinished, warnings };
}

process.on('message', message => {
  if (message === 'state') {
    void state().then(answer => process.send?.(answer));
    return;
  }
  void app.close().then(() => process.exit(0));
});
const { port } = app.app.server.address() as AddressInfo;
process.send?.({ rest: port, token: app.token } satisfies FormPort);
