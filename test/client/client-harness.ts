/** The client, a proxy and a real control plane. Needs: portal. */
import { randomBytes } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { MattingClient, type MattingClientOptions } from '../../client/src/index.ts';
import {
  pngHeader,
  type TestApp,
  type TestAppOptions,
} from '../../control-plane/core/test/support/test-app.ts';
import { openTestApp } from '../../control-plane/test/app.ts';
import { FaultyProxy } from './faulty-proxy.ts';

export interface ClientHarness {
  readonly app: TestApp;
  readonly proxy: FaultyProxy;
  readonly client: MattingClient;
  /** Ends every job submitted from now on with this cut-out. */
  serve(cutOut: Buffer<ArrayBuffer>): { stop(): Promise<void> };
  clientWith(options: Partial<MattingClientOptions>): MattingClient;
  close(): Promise<void>;
}

export async function openClientHarness(options: TestAppOptions = {}): Promise<ClientHarness> {
  const proxy = await FaultyProxy.open();
  const app = await openTestApp({ baseUrl: proxy.url, ...options });
  await app.app.listen({ port: 0, host: '127.0.0.1' });
  proxy.forwardTo((app.app.server.address() as AddressInfo).port);
  const clientWith = (more: Partial<MattingClientOptions>) =>
    new MattingClient({ baseUrl: proxy.url, apiKey: app.token, ...more });
  return {
    app,
    proxy,
    client: clientWith({}),
    serve: cutOut => app.onSubmitted(jobId => app.succeedJob(jobId, cutOut)),
    clientWith,
    close: async () => {
      await proxy.close();
      await app.close();
    },
  };
}

/** Unique bytes that the service takes for a PNG. */
export function newPicture(): Uint8Array {
  return new Uint8Array(Buffer.concat([pngHeader(4, 3), randomBytes(16)]));
}
