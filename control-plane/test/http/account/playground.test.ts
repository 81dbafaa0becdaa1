/** The playground's pages: a picture in, its result out, as a browser without scripts asks. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ContractError } from '#contract/errors.ts';
import { PLAYGROUND_ACCOUNT_OPEN_MAX } from '../../../src/domain/playground.ts';
import { createSecret } from '../../../src/http/account/session/cookies.ts';
import { PLAYGROUND_UPLOADS_MAX } from '../../../src/services/playground/use-playground.ts';
import { multipartOf } from '../../support/area/person.ts';
import { type Member, openWorld } from '../../support/area/world.ts';
import { FORM_TYPE, formOf, imagePart, type Part } from '../../support/forms.ts';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { BASE_URL, openTestApp, pngHeader, useTestApp } from '../../support/test-app.ts';

const PAGE = '/account/playground';
const picture = imagePart(pngHeader(4, 3));

const areaWith = (playgroundImages: number) =>
  ({ canSignIn: true, oidc: undefined, playgroundImages }) as const;

describe('the playground', () => {
  let owner: SignedInBrowser;
  const test = useTestApp({ credits: 0, accountArea: areaWith(8) }, async () => {
    owner = await signIn(test);
  });

  const text = (name: string, body: string): Part => ({ name, body });
  const formParts = (by = owner): Part[] => [text('csrf', by.csrf), text('once', createSecret())];

  function send(parts: readonly Part[], by = owner, headers: Record<string, string> = {}) {
    const own = { cookie: by.cookieHeader, origin: BASE_URL, accept: 'text/html', ...FORM_TYPE };
    return test.app.inject({
      method: 'POST',
      url: PAGE,
      headers: { ...own, ...headers },
      payload: formOf(parts),
    });
  }

  /** The id in the page that an accepted form leads to. */
  async function sent(parts: readonly Part[], by = owner): Promise<string> {
    const answer = await send(parts, by);
    assert.equal(answer.statusCode, 303, answer.body);
    const id = /^\/account\/playground\/([0-9a-f-]{36})/.exec(String(answer.headers.location))?.[1];
    assert.ok(id);
    return id;
  }

  const used = async () => (await test.stores.playground.usage(test.accountId)).used;

  it('makes a job of the form, shows it while it waits, and its result when it is done', async () => {
    const parts = [...formParts(), text('output_format', 'webp'), text('background', '')];
    const answer = await send([...parts, picture]);
    assert.equal(answer.statusCode, 303);
    const path = String(answer.headers.location);
    assert.match(path, /\?output_format=webp$/);
    const waiting = await owner.get(path);
    assert.equal(waiting.headers.refresh, '2');
    assert.match(waiting.body, /data-state="queued"/);
    const id = path.slice(PAGE.length + 1).split('?')[0] ?? '';
    const job = await test.stores.jobs.find(id);
    assert.ok(job?.playgroundDayMs);
    assert.equal(job.outputFormat, 'webp');
    await test.succeedJob(id, Buffer.from('its bytes'));
    const done = await owner.get(path);
    assert.equal(done.headers.refresh, undefined);
    assert.match(done.body, new RegExp(`src="${PAGE}/${id}/result"`));
    assert.match(done.body, /--form-string output_format=webp/);
    const file = await owner.get(`${PAGE}/${id}/result`);
    assert.equal(file.body, 'its bytes');
    assert.equal(file.headers['content-type'], 'image/webp');
    assert.match(String(file.headers['content-security-policy']), /sandbox/);
    assert.equal(file.headers['x-content-type-options'], 'nosniff');
    assert.match(String(file.headers['content-disposition']), /^attachment/);
    assert.equal(file.headers['cache-control'], 'no-store');
    assert.deepEqual(await test.stores.ledger.balances(test.accountId), {
      available: 0,
      reserved: 0,
    });
  });

  it('takes the demo picture in place of a file', async () => {
    const empty = { ...imagePart(Buffer.alloc(0)), fileName: '', type: 'application/octet-stream' };
    const id = await sent([...formParts(), empty, text('demo', '1')]);
    assert.equal((await test.stores.jobs.find(id))?.input?.format, 'jpeg');
    await test.succeedJob(id);
    const demo = await owner.get(`${PAGE}/demo.jpg`);
    assert.equal(demo.headers['content-type'], 'image/jpeg');
  });

  it('makes one job of a form that is sent twice', async () => {
    const before = await used();
    const parts = [...formParts(), picture];
    const id = await sent(parts);
    assert.equal(await sent(parts), id);
    assert.equal(await used(), before + 1);
    await test.succeedJob(id);
    assert.equal(await sent(parts), id);
  });

  it('says beside the field what is wrong, keeps what was typed, and counts nothing', async () => {
    const before = await used();
    const files = (await test.storedFiles()).length;
    const cases: [Part[], RegExp][] = [
      [[text('background', 'no <b>colour'), picture], /id="background-error"/],
      [[text('scale', '400%'), picture], /id="scale-error"/],
      [[imagePart(Buffer.from('no picture'))], /id="image_file-error"/],
      [[imagePart(pngHeader(20_000, 3))], /id="image_file-error"/],
      [[text('output_format', 'jpeg'), picture], /id="output_format-error"/],
      [[], /id="image_file-error"/],
    ];
    for (const [parts, expected] of cases) {
      const answer = await send([...formParts(), ...parts]);
      assert.equal(answer.statusCode, 422, answer.body);
      assert.match(answer.body, expected);
      assert.ok(!answer.body.includes('<b>colour'));
    }
    assert.equal(await used(), before);
    assert.equal((await test.storedFiles()).length, files);
  });

  it('says beside its field what no node can do, and uses no picture of the day', async () => {
    const before = await used();
    const node = {
      bootId: 'boot',
      inputFormats: new Set(['png'] as const),
      outputFormats: new Set(['png'] as const),
      imagePixelsMax: 1e8,
      jxlPixelsMax: 0,
      megapixelsAloneMax: 100,
    };
    test.advertise([node]);
    const answer = await send([...formParts(), text('output_format', 'webp'), picture]);
    test.advertise(undefined);
    assert.equal(answer.statusCode, 422, answer.body);
    assert.match(answer.body, /id="output_format-error"/);
    assert.equal(await used(), before);
  });

  it('takes no byte of a file before the form has shown its token', async () => {
    const files = (await test.storedFiles()).length;
    const once = text('once', createSecret());
    const wrong: Part[][] = [
      [once, picture],
      [picture, ...formParts()],
      [text('csrf', createSecret()), once, picture],
      [text('csrf', owner.csrf), picture],
    ];
    for (const parts of wrong) assert.equal((await send(parts)).statusCode, 403);
    const foreign = await send([...formParts(), picture], owner, {
      origin: 'https://elsewhere.example',
    });
    assert.equal(foreign.statusCode, 403);
    assert.equal((await test.storedFiles()).length, files);
  });

  it('takes no field that the form has not', async () => {
    for (const name of ['image_url', 'callback_url', 'background_url', 'image_base64', 'x']) {
      const answer = await send([...formParts(), text(name, 'https://a.example/'), picture]);
      assert.equal(answer.statusCode, 422, name);
    }
  });

  it('is refused where what is paid for needs the room, and counts nothing', async () => {
    const before = await used();
    test.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
    try {
      const answer = await send([...formParts(), picture]);
      assert.equal(answer.statusCode, 503);
      assert.equal(answer.headers['retry-after'], '9');
      assert.match(answer.body, /what is paid for comes first/);
    } finally {
      test.refuseNewJobs(undefined);
    }
    assert.equal(await used(), before);
  });

  it('has no page of a job that is paid for', async () => {
    await test.stores.ledger.grant(test.accountId, 1, 'for one');
    const paid = await test.post('/v1/matting/jobs', {
      image_base64: picture.body.toString('base64'),
    });
    assert.equal(paid.statusCode, 202, paid.body);
    const { job_id } = paid.json();
    assert.equal((await owner.get(`${PAGE}/${job_id}`)).statusCode, 404);
    await test.succeedJob(job_id);
  });

  it('takes few at once, and no more than a day has', async () => {
    const left = 8 - (await used());
    assert.ok(left > 1);
    const open: string[] = [];
    while (open.length < Math.min(left, PLAYGROUND_ACCOUNT_OPEN_MAX)) {
      open.push(await sent([...formParts(), picture]));
    }
    if (left > PLAYGROUND_ACCOUNT_OPEN_MAX) {
      const answer = await send([...formParts(), picture]);
      assert.equal(answer.statusCode, 429);
      assert.match(answer.body, /as many pictures under way/);
    }
    for (const id of open) await test.succeedJob(id);
    while ((await used()) < 8) await test.succeedJob(await sent([...formParts(), picture]));
    const answer = await send([...formParts(), picture]);
    assert.equal(answer.statusCode, 429);
    assert.match(answer.body, /All 8 pictures of today are used/);
    assert.match((await owner.get(PAGE)).body, /<button[^>]*disabled/);
  });

  it('can be off', async t => {
    const off = await openTestApp({ accountArea: areaWith(0) }, t);
    assert.match((await (await signIn(off)).get(PAGE)).body, /The playground is off/);
  });
});

/** An account alone has half. */
const SHARE = PLAYGROUND_UPLOADS_MAX / 2;

it('an account that holds its share back leaves the others theirs', async t => {
  const world = await openWorld({ accountArea: areaWith(100) }, t);
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
});
