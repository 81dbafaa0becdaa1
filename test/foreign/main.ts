/**
 * Checks what clients of remove.bg by others, and clients that generators make of the OpenAPI
 * document, get from this service. They come from npm, PyPI, Maven Central and Go's modules into a
 * temporary directory, so `make test` leaves this out. It names each client that it cannot install
 * as skipped.
 *
 *     sh bin/node24 test/foreign/main.ts                                # starts a service
 *     MATTING_API_KEY=mk_… sh bin/node24 test/foreign/main.ts http://127.0.0.1:8080
 *     ONLY=generat sh bin/node24 test/foreign/main.ts                   # part of a client's name
 *
 * Exits 1 if a client did not get what it requested. Needs: removebg.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ROOT, startService } from '../running-service.ts';
import { FOREIGN_CLIENTS, Skipped } from './clients.ts';
import { GENERATED_CLIENTS } from './generated-clients.ts';

const ONLY = process.env.ONLY ?? '';
const CLIENTS = [...FOREIGN_CLIENTS, ...GENERATED_CLIENTS].filter(({ name }) =>
  name.includes(ONLY),
);

interface Service {
  readonly url: string;
  readonly apiKey: string;
  close(): Promise<void>;
}

async function openService(url: string | undefined): Promise<Service> {
  if (url !== undefined) {
    const apiKey = process.env.MATTING_API_KEY ?? '';
    return { url: url.replace(/\/+$/, ''), apiKey, close: async () => undefined };
  }
  const { baseUrl, apiKey, close } = await startService();
  return { url: baseUrl, apiKey, close };
}

const directory = mkdtempSync(path.join(tmpdir(), 'matting-foreign-'));
const service = await openService(process.argv[2]);
try {
  for (const [index, { name, check }] of CLIENTS.entries()) {
    const { url, apiKey } = service;
    const picture = path.join(ROOT, 'docs/images/demo.jpg');
    const own = path.join(directory, String(index));
    try {
      console.log(`passed   ${name}: ${await check({ url, apiKey, picture, directory: own })}`);
    } catch (error) {
      if (error instanceof Skipped) {
        console.log(`skipped  ${name}: ${error.message}`);
        continue;
      }
      process.exitCode = 1;
      console.log(`FAILED   ${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
} finally {
  await service.close();
  rmSync(directory, { recursive: true, force: true });
}
