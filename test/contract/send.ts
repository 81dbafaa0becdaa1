/** Needs: object-storage, portal. */
import type { ExecutionContext } from 'ava';
import { bucketStorage } from '../../control-plane/object-storage/object-storage.ts';
import { openTestApp, type ProgramApp } from '../../control-plane/test/app.ts';
import {
  CREDENTIALS_ENV,
  createObjectStore,
  OBJECT_STORE,
} from '../support/object-storage/object-store.ts';

export interface Request {
  readonly method: string;
  readonly url: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string | string[] | undefined>;
  readonly of?: ProgramApp;
}

/** Its result links redirect to the storage. */
export async function openLeadingApp(t: ExecutionContext): Promise<ProgramApp> {
  Object.assign(process.env, CREDENTIALS_ENV);
  const store = await createObjectStore(OBJECT_STORE);
  t.teardown(() => store.close());
  const app = await openTestApp(
    {
      storageUrl: store.url(),
      storageKinds: [bucketStorage],
      resultDownloads: 'redirect',
    },
    t,
  );
  return app;
}

/** @param app default for requests */
export async function sendTo(app: ProgramApp, { method, url, body, headers, of = app }: Request) {
  const answer = await of.app.inject({
    method: method as 'GET',
    url,
    headers: of.headers({
      ...(body === undefined ? { 'content-type': undefined } : {}),
      ...headers,
    }),
    ...(body === undefined
      ? {}
      : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  return { ...answer, method, url, status: answer.statusCode, body: answer.rawPayload };
}
