/** Both versions count one daily limit of free pictures. Needs: object-storage, portal. */
import assert from 'node:assert/strict';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { createSecret, hashOfSecret } from '../../control-plane/portal/session/secret.ts';
import { linkUse, newLink, newSession, OPERATOR } from '../../control-plane/portal/test/people.ts';
import { storesOn } from '../../control-plane/test/every-store.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetControlPlane } from '../fleet/program.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import { SILENT_LOG } from '../support/database.ts';
import { until } from '../support/processes.ts';

/** As many as the release lets an account have open. */
export const PLAYGROUND_IMAGES = 4;
const PAGE = '/account/playground';
const END_MS_MAX = 120_000;

/** One to each, then more than is left to both at once. */
export async function requireOnePlayground(
  fleet: Fleet,
  planes: readonly [FleetControlPlane, FleetControlPlane],
): Promise<void> {
  const database = await openDatabase(fleet.ground.databaseUrl, { log: SILENT_LOG });
  try {
    const { accounts, links, ledger, jobs, playground } = storesOn(database);
    const account = await accounts.create('a playground');
    assert.ok(account);
    const [secret, link] = [createSecret(), newLink(account.id)];
    await links.create(link, OPERATOR);
    await links.use(linkUse(link, { session: newSession({ idHash: hashOfSecret(secret) }) }));
    const send = await formsOf(fleet.baseUrl, secret);
    const answers = [await send(planes[0]), await send(planes[1])];
    assert.ok(answers.every(({ status }) => status === 303));
    const more = Array.from({ length: PLAYGROUND_IMAGES }, () => planes.map(send));
    answers.push(...(await Promise.all(more.flat())));
    const made = answers.flatMap(({ location }) => location ?? []);
    assert.equal(made.length, PLAYGROUND_IMAGES, JSON.stringify(answers));
    for (const path of made) {
      const id = path.slice(PAGE.length + 1, PAGE.length + 37);
      const isDone = async () => (await jobs.find(id))?.state === 'succeeded';
      await until(isDone, { timeoutMs: END_MS_MAX, what: `the cut-out of ${id}` });
    }
    assert.equal((await playground.usage(account.id)).used, PLAYGROUND_IMAGES);
    assert.deepEqual(await ledger.balances(account.id), { available: 0, reserved: 0 });
    assert.deepEqual(await ledger.check(account.id), []);
  } finally {
    await database.close();
  }
}

async function formsOf(baseUrl: string, secret: string) {
  const { file } = await uniformPicture(12);
  const headers = { cookie: `__Host-matting-session=${secret}`, origin: baseUrl };
  const page = await (await fetch(baseUrl + PAGE, { headers })).text();
  const csrf = /name="csrf" value="([^"]+)"/.exec(page)?.[1];
  assert.ok(csrf, page);
  return async ({ url }: FleetControlPlane) => {
    const form = new FormData();
    form.append('csrf', csrf);
    form.append('once', createSecret());
    form.append('image_file', new Blob([Uint8Array.from(file)]), 'picture.png');
    const init = { method: 'POST', headers, body: form, redirect: 'manual' } as const;
    const { status, headers: answered } = await fetch(url + PAGE, init);
    return { status, location: answered.get('location') };
  };
}
