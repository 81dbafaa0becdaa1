/** Opens a pool, starts an endless run, prints the engine's process id, waits to be killed. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { createUniformRgb, writeTinyModel } from '../../../../test/support/tiny-model.ts';
import { openEnginePool } from '../../../src/engine/pool/open-engine-pool.ts';

const folder = await mkdtemp(path.join(tmpdir(), 'engine-'));
const model = await writeTinyModel(folder, { kind: 'paced', tripsMax: 100_000 });
const log = pino({ level: 'silent' });
const pool = openEnginePool({ model, engines: 1, threadsPerEngine: 1, childEnv: {}, log });
await pool.ready();
await rm(folder, { recursive: true });
const rgb = createUniformRgb(model.inputWidth, model.inputHeight, 255);
const run = pool.run({ rgb, priority: 'sync', signal: new AbortController().signal });
process.stdout.write(`${pool.processes()[0]?.pid}\n`);
await run;
