/** Scripted nodes that get their input and put their result by signed URLs, well or not. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { DirectInput, ResultHeader, ResultPlace } from '#gen/matting/v1/matte_service.ts';
import type { Exchange, Script } from '../../nodes/scripted-exchange.ts';
import { pngHeader } from '../../support/test-app.ts';

/** A picture by its header, as large as the harness says its inputs are. */
export const RESULT = Buffer.concat([pngHeader(10, 10), Buffer.from('pixels')]);

/** As a node reads what it was referred to. */
export async function get({ url }: DirectInput): Promise<Buffer> {
  const answer = await fetch(url, { redirect: 'error' });
  assert.equal(answer.status, 200, await answer.clone().text());
  return Buffer.from(await answer.arrayBuffer());
}

/** @returns the store's status */
export async function put(
  { url, headers }: ResultPlace,
  body: Uint8Array = RESULT,
): Promise<number> {
  const { 'content-length': _, ...signed } = headers;
  const answer = await fetch(url, { method: 'PUT', headers: signed, body: Buffer.from(body) });
  await answer.arrayBuffer();
  return answer.status;
}

export const DIGEST = createHash('sha256').update(RESULT).digest();

/** As a node does it, but for what it makes of its place; streamed where it is asked to. */
export function direct(
  stored: (place: ResultPlace, exchange: Exchange) => Promise<void>,
  changes: Partial<ResultHeader> = {},
): Script {
  return async exchange => {
    if (exchange.header.directOrigin === '') return await exchange.cutOut();
    exchange.admit();
    await get(await exchange.references());
    await stored(await exchange.askPlace(RESULT, changes), exchange);
    exchange.done(DIGEST);
    exchange.end();
  };
}

/** As a node that makes, announces and puts this. */
export function made(result: Buffer, changes: Partial<ResultHeader> = {}): Script {
  return async exchange => {
    exchange.admit();
    await get(await exchange.references());
    assert.equal(await put(await exchange.askPlace(result, changes), result), 200);
    exchange.done(createHash('sha256').update(result).digest());
    exchange.end();
  };
}

export const wellDone = direct(async place => assert.equal(await put(place), 200));
