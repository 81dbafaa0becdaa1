/** Pictures that a playground sends and never finishes: each account has its share of the places. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { createSecret } from '../../../src/http/account/session/cookies.ts';
import { PLAYGROUND_UPLOADS_MAX } from '../../../src/services/playground/use-playground.ts';
import { multipartOf } from '../../support/area/person.ts';
import { type Member, World } from '../../support/area/world.ts';
import { pngHeader } from '../../support/test-app.ts';

const PAGE = '/account/playground';
/** An account alone has half. */
const SHARE = PLAYGROUND_UPLOADS_MAX / 2;

it('an account that holds its share back leaves the others theirs', async () => {
  const world = await World.open({
    accountArea: { canSignIn: true, oidc: undefined, playgroundImages: 100 },
  });
  try {
    const { playground } = world.test.services.accountArea;
    const formOf = async (person: Member) =>
      multipartOf({ csrf: await person.token(), once: createSecret() }, pngHeader(4, 3));
    const send = async (person: Member) =>
      (await person.post(PAGE, {}, { csrf: null, ...(await formOf(person)) })).statusCode;
    const { owner, member } = world.ours.people;
    const held = [];
    for (let count = 1; count <= SHARE; count += 1) {
      held.push(await owner.hold(PAGE, {}, await formOf(owner)));
      while (playground.uploading < count) await delay(2);
    }
    assert.equal(await send(owner), 503);
    assert.equal(await send(member), 503);
    assert.equal(await send(world.theirs.people.owner), 303);
    // More than may be open of one account: the last ones are told so, and give their places back.
    const statuses = new Set<number>();
    for (const form of held) statuses.add((await form.release()).status);
    assert.deepEqual(statuses, new Set([303, 429]));
    assert.equal(playground.uploading, 0);
    assert.equal(await send(owner), 429);
  } finally {
    await world.close();
  }
});
