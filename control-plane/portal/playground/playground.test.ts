/** Requests of a browser without scripts. */

import assert from 'node:assert/strict';
import { OfferedModels } from '@matting/core/test/internals.ts';
import { BASE_URL, pngHeader } from '@matting/core/test/support/test-app.ts';
import { FORM_TYPE, formOf, imagePart, type Part } from '@matting/http/test/forms.ts';
import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { sameNames } from '@matting/test-support/same-names.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { assetBytes } from '../page/assets.ts';
import { SAMPLES, sampleFile } from '../page/stage.ts';
import { createSecret } from '../session/secret.ts';
import { multipartOf } from '../test/area/person.ts';
import { type Member, openWorld } from '../test/area/world.ts';
import { areaOf, openTestApp, useTestApp } from '../test/portal-app.ts';
import { type SignedInBrowser, signIn } from '../test/signed-in-browser.ts';
import { PLAYGROUND_OPTIONS } from './use-playground.ts';

const test = ava.serial;

const PAGE = '/account/playground';
const IMAGES_MAX = 20;
const picture = imagePart(pngHeader(4, 3));

const areaWith = (playgroundImages: number) =>
  ({ canSignIn: true, oidc: undefined, playgroundImages }) as const;

let owner: SignedInBrowser;
const fixture = useTestApp(
  test,
  { credits: 0, settings: { portal: { accountArea: areaWith(IMAGES_MAX) } } },
  async () => {
    owner = await signIn(fixture);
  },
);

const text = (name: string, body: string): Part => ({ name, body });
const formParts = (by = owner): Part[] => [text('csrf', by.csrf), text('once', createSecret())];

function send(
  parts: readonly Part[],
  by = owner,
  headers: Record<string, string> = {},
  url = PAGE,
) {
  const own = { cookie: by.cookieHeader, origin: BASE_URL, accept: 'text/html', ...FORM_TYPE };
  return fixture.app.inject({
    method: 'POST',
    url,
    headers: { ...own, ...headers },
    payload: formOf(parts),
  });
}

async function sent(parts: readonly Part[], by = owner): Promise<string> {
  const answer = await send(parts, by);
  assert.equal(answer.statusCode, 303, answer.body);
  const id = /^\/account\/playground\/([0-9a-f-]{36})/.exec(String(answer.headers.location))?.[1];
  assert.ok(id);
  return id;
}

const used = async () => (await fixture.stores.playground.usage(fixture.accountId)).used;

test('the playground › makes a job of the form, shows it while it waits, and its result when it is done', async t => {
  const parts = [...formParts(), text('output_format', 'webp'), text('background', '')];
  const answer = await send([...parts, picture]);
  t.is(answer.statusCode, 303);
  const path = String(answer.headers.location);
  t.regex(path, /\?output_format=webp$/);
  const waiting = await owner.get(path);
  t.is(waiting.headers.refresh, '2');
  t.regex(waiting.body, /data-state="queued"/);
  const id = path.slice(PAGE.length + 1).split('?')[0] ?? '';
  const job = await fixture.stores.jobs.find(id);
  assert.ok(job?.unpaidDayMs);
  t.is(job.outputFormat, 'webp');
  fixture.sight = { inputWidth: 2, inputHeight: 1, subject: null };
  await fixture.succeedJob(id, Buffer.from('its bytes'));
  fixture.sight = null;
  const done = await owner.get(path);
  t.is(done.headers.refresh, undefined);
  t.regex(done.body, new RegExp(`src="${PAGE}/${id}/result"`));
  t.regex(done.body, /No subject was found/);
  t.regex(done.body, /--form-string output_format=webp/);
  const file = await owner.get(`${PAGE}/${id}/result`);
  t.is(file.body, 'its bytes');
  t.is(file.headers['content-type'], 'image/webp');
  t.regex(String(file.headers['content-security-policy']), /sandbox/);
  t.is(file.headers['x-content-type-options'], 'nosniff');
  t.regex(String(file.headers['content-disposition']), /^attachment/);
  t.is(file.headers['cache-control'], 'private, no-cache');
  const known = { headers: { 'if-none-match': String(file.headers.etag) } };
  const same = await owner.get(`${PAGE}/${id}/result`, known);
  t.deepEqual([same.statusCode, same.body], [304, '']);
  t.deepEqual(await fixture.stores.ledger.balances(fixture.accountId), {
    available: 0,
    reserved: 0,
  });
});

test('the playground › shows by its thumbnail what browsers do not show', async t => {
  const id = await sent([...formParts(), text('output_format', 'jxl'), picture]);
  fixture.thumbnail = Buffer.from('its picture');
  await fixture.succeedJob(id);
  fixture.thumbnail = undefined;
  const { body } = await owner.get(`${PAGE}/${id}`);
  t.regex(body, new RegExp(`src="/account/jobs/${id}/thumbnail"`));
  t.notRegex(body, /src="[^"]*\/result"/);
});

test('the playground › keeps what corrections need, as long as the result', async t => {
  const id = await sent([...formParts(), picture]);
  await fixture.succeedJob(id);
  t.truthy((await fixture.stores.jobs.find(id))?.kept?.input);
});

const STROKE = '[{"line":[[1,1],[2,2]],"radius":1}]';
const correct = (id: string, parts: readonly Part[]) =>
  send(parts, owner, {}, `${PAGE}/${id}/corrections?output_format=png`);

async function correctableJob(): Promise<string> {
  const id = await sent([...formParts(), picture]);
  fixture.sight = { inputWidth: 4, inputHeight: 3, subject: null };
  await fixture.succeedJob(id);
  fixture.sight = null;
  return id;
}

test('the playground › offers to paint on a cut-out, in the pixels of its picture', async t => {
  const id = await correctableJob();
  const { body } = await owner.get(`${PAGE}/${id}`);
  t.regex(body, new RegExp(`action="${PAGE}/${id}/corrections"`));
  t.regex(body, /data-width="4" data-height="3"/);
  t.regex(body, /data-back="true" href[^>]* hidden/);
  t.regex(body, /--form-string &#39;keep=\{keep\}&#39;|keep=\{keep\}/);
});

test('the playground › corrects a cut-out by strokes, which counts in no allowance', async t => {
  const id = await correctableJob();
  const before = await used();
  const form = [...formParts(), text('keep', STROKE), text('erase', '')];
  const answer = await correct(id, form);
  t.is(answer.statusCode, 303, answer.body);
  const path = String(answer.headers.location);
  t.regex(path, /\?output_format=png$/);
  const made = path.slice(PAGE.length + 1).split('?')[0] ?? '';
  const job = await fixture.stores.jobs.find(made);
  t.like(job?.correction, { of: id, cropRun: {} });
  t.is(job?.class, 'playground');
  t.is(await used(), before);
  const again = await correct(id, form);
  t.is(again.headers.location, answer.headers.location);
  fixture.sight = { inputWidth: 4, inputHeight: 3, subject: null };
  await fixture.succeedJob(made);
  fixture.sight = null;
  const back = `href="${PAGE}/${id}?output_format=png">Back to the previous`;
  t.true((await owner.get(path)).body.includes(back));
});

test('the playground › says that a correction that failed was not counted', async t => {
  const id = await correctableJob();
  const { location } = (await correct(id, [...formParts(), text('erase', STROKE)])).headers;
  const made = String(location).slice(PAGE.length + 1, PAGE.length + 37);
  await fixture.failJob(made, { code: 'PROCESSING_FAILED', detail: 'none', retryable: false });
  t.regex((await owner.get(String(location))).body, /data-state="failed".*was not counted/s);
});

test('the playground › refuses strokes that the API refuses, and shows the cut-out again', async t => {
  const id = await correctableJob();
  for (const parts of [[text('keep', '[{"box":[1,1,0,0]}]')], [text('keep', 'x')]]) {
    const answer = await correct(id, [...formParts(), ...parts]);
    t.is(answer.statusCode, 422, JSON.stringify(parts));
    t.regex(answer.body, new RegExp(`src="${PAGE}/${id}/result"`));
    t.regex(answer.body, /data-refusal[^>]*><div class="notice bad"/);
  }
  const answer = await correct(id, [...formParts(), text('output_format', 'webp')]);
  t.is(answer.statusCode, 422);
  t.is((await correct(id, [text('csrf', 'x'), text('keep', STROKE)])).statusCode, 403);
});

test('the playground › says when a cut-out takes no more corrections', async t => {
  const id = await correctableJob();
  await fixture.database.kysely
    .updateTable('jobs')
    .set({ corrections: 20 })
    .where('id', '=', id)
    .execute();
  const answer = await correct(id, [...formParts(), text('keep', STROKE)]);
  t.is(answer.statusCode, 409);
  t.regex(answer.body, /takes no more corrections/);
});

test('the playground › lets a picture fail in which no subject is seen', async t => {
  const answer = await send([...formParts(), text('no_subject', 'fail'), picture]);
  const path = String(answer.headers.location);
  t.regex(path, /\?no_subject=fail$/);
  const waiting = await owner.get(path);
  t.regex(waiting.body, /name="no_subject" value="fail" checked/);
  t.regex(waiting.body, /--form-string no_subject=fail/);
  const id = path.slice(PAGE.length + 1).split('?')[0] ?? '';
  t.is((await fixture.stores.jobs.find(id))?.noSubject, 'fail');
  await fixture.failJob(id, { code: 'NO_SUBJECT', detail: 'none', retryable: false });
  t.regex((await owner.get(path)).body, /No subject was found/);
});

test('the playground › takes a sample in place of a file, of those that there are', async t => {
  const empty = { ...imagePart(Buffer.alloc(0)), fileName: '', type: 'application/octet-stream' };
  for (const sample of SAMPLES) {
    const id = await sent([...formParts(), empty, text('sample', sample)]);
    const bytes = assetBytes(sampleFile(sample)).length;
    const input = (await fixture.stores.jobs.find(id))?.input;
    t.deepEqual([input?.format, input?.bytes], ['jpeg', bytes], sample);
    await fixture.succeedJob(id);
  }
  t.is((await send([...formParts(), empty, text('sample', 'constructor')])).statusCode, 400);
});

test('the playground › makes one job of a form that is sent twice', async t => {
  const before = await used();
  const parts = [...formParts(), picture];
  const id = await sent(parts);
  t.is(await sent(parts), id);
  t.is(await used(), before + 1);
  await fixture.succeedJob(id);
  t.is(await sent(parts), id);
});

test('the playground › says beside the field what is wrong, keeps what was typed, and counts nothing', async t => {
  const before = await used();
  const files = (await fixture.storedFiles()).length;
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
    t.is(answer.statusCode, 422, answer.body);
    t.regex(answer.body, expected);
    t.false(answer.body.includes('<b>colour'));
  }
  t.is(await used(), before);
  t.is((await fixture.storedFiles()).length, files);
});

test('the playground › takes no byte of a file before the form has shown its token', async t => {
  const files = (await fixture.storedFiles()).length;
  const once = text('once', createSecret());
  const wrong: Part[][] = [
    [once, picture],
    [picture, ...formParts()],
    [text('csrf', createSecret()), once, picture],
    [text('csrf', owner.csrf), picture],
  ];
  for (const parts of wrong) t.is((await send(parts)).statusCode, 403);
  const foreign = await send([...formParts(), picture], owner, {
    origin: 'https://elsewhere.example',
  });
  t.is(foreign.statusCode, 403);
  t.is((await fixture.storedFiles()).length, files);
});

test('the playground › takes no field that the form has not', async t => {
  for (const name of ['image_url', 'callback_url', 'background_url', 'image_base64', 'x']) {
    const answer = await send([...formParts(), text(name, 'https://a.example/'), picture]);
    t.is(answer.statusCode, 422, name);
  }
});

test('the playground › is refused while the queue is full, and counts nothing', async t => {
  const before = await used();
  fixture.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
  try {
    const answer = await send([...formParts(), picture]);
    t.is(answer.statusCode, 503);
    t.is(answer.headers['retry-after'], '9');
    t.regex(answer.body, /The service is busy/);
  } finally {
    fixture.refuseNewJobs(undefined);
  }
  t.is(await used(), before);
});

test('the playground › has no page of a job that is paid for', async t => {
  await fixture.stores.ledger.grant(fixture.accountId, 1, 'for one');
  const paid = await fixture.post('/v1/matting/jobs', {
    image_base64: picture.body.toString('base64'),
  });
  t.is(paid.statusCode, 202, paid.body);
  const { job_id } = paid.json();
  t.is((await owner.get(`${PAGE}/${job_id}`)).statusCode, 404);
  await fixture.succeedJob(job_id);
});

test('the playground › gives back what made no job, and counts a job whose answer was lost', async t => {
  const { submitMatting } = fixture.services;
  const submit = submitMatting.submit.bind(submitMatting);
  const before = await used();
  const parts = [...formParts(), picture];
  t.teardown(() => Object.assign(submitMatting, { submit }));
  for (const [counted, makes] of [
    [0, false],
    [1, true],
  ] as const) {
    submitMatting.submit = async sent => {
      if (makes) await submit(sent);
      throw new Error('the answer is lost');
    };
    t.is((await send(parts)).statusCode, 500);
    t.is(await used(), before + counted);
  }
  submitMatting.submit = submit;
  await fixture.succeedJob(await sent(parts));
  t.is(await used(), before + 1);
});

test('the playground › takes no more than a day has, and says so', async t => {
  const parts = [...formParts(), picture];
  const id = await sent(parts);
  while ((await used()) < IMAGES_MAX) await sent([...formParts(), picture]);
  const answer = await send([...formParts(), picture]);
  t.is(answer.statusCode, 429);
  t.regex(answer.body, /used all 20 pictures/);
  t.regex((await owner.get(PAGE)).body, /<button[^>]*disabled/);
  t.is(await sent(parts), id, 'which was counted');
  t.is((await fixture.stores.jobs.openOf(fixture.accountId, 5)).length, 5, 'of any number open');
});

test('the playground › offers what may be named, beside what runs without a name', async t => {
  const unserved = (await owner.get(PAGE)).body;
  t.false(unserved.includes('name="model"'), 'nothing to choose');
  t.false(unserved.includes('heic'), 'an iPhone converts');
  const settings = { portal: { accountArea: areaWith(IMAGES_MAX) } };
  const app = await openTestApp({ settings, modelsOffered: ['fast', 'u2netp'] }, t);
  const fast = { name: 'fast', goodFor: 'clear subjects <b>', weights: {}, trainingData: {} };
  const models = new Map([['fast', fast]]);
  app.nodes = [{ models, inputFormats: new Set(['heic']) } as object as NodeSnapshot];
  const by = await signIn(app);
  const { models: offered } = areaOf(app) as { models: unknown };
  assert.ok(offered instanceof OfferedModels);
  for (let count = 0; count < 10; count += 1) offered.noteJob('fast', 1500);
  const { body } = await by.get(PAGE);
  t.regex(body, /name="image_file"[^>]*,image\/heic,[^>]*\.heif"/);
  const choices = [...body.matchAll(/name="model" value(?:="(\w+)")?( checked)?/g)];
  t.deepEqual(
    choices.map(([, name]) => name),
    [undefined, 'fast', 'u2netp'],
  );
  t.deepEqual(
    choices.map(([, , checked]) => checked),
    [' checked', undefined, undefined],
  );
  t.regex(body, /clear subjects &lt;b> · about 1\.5s/);
  t.regex(body, /data-seconds="{&quot;fast&quot;:1\.5,&quot;&quot;:1\.5}"/);
  const sendBy = async (model: string) => {
    const own = { cookie: by.cookieHeader, origin: BASE_URL, accept: 'text/html', ...FORM_TYPE };
    const payload = formOf([...formParts(by), text('model', model), picture]);
    return await app.app.inject({ method: 'POST', url: PAGE, headers: own, payload });
  };
  const sentTo = String((await sendBy('u2netp')).headers.location);
  const [id = '', query] = sentTo.slice(PAGE.length + 1).split('?');
  t.is(query, 'model=u2netp');
  t.is((await app.stores.jobs.find(id))?.model, 'u2netp');
  const page = (await by.get(sentTo)).body;
  t.regex(page, /value="u2netp" checked/);
  for (const line of ['--form-string model=u2netp', 'model: "u2netp",', '"model": "u2netp",']) {
    t.true(page.replaceAll('&quot;', '"').includes(line), line);
  }
  const refused = await sendBy('best');
  t.is(refused.statusCode, 422);
  t.regex(refused.body, /id="model-error"/);
});

test('the playground › has a control for each of its options', async t => {
  const { body } = await owner.get(PAGE);
  const controls = [...body.matchAll(/<(?:input|select)\b[^>]* name="(\w+)"/g)].map(
    ([, name]) => name,
  );
  const own = ['csrf', 'once', 'back', 'sample', 'image_file', 'background_file'];
  const found = new Set(controls.filter(name => !own.includes(String(name))).map(String));
  // The nodes offer no model here.
  sameNames(
    t,
    [...found],
    PLAYGROUND_OPTIONS.filter(name => name !== 'model'),
  );
});

test('the playground › can be off', async t => {
  const off = await openTestApp({ settings: { portal: { accountArea: areaWith(0) } } }, t);
  t.regex((await (await signIn(off)).get(PAGE)).body, /The playground is off/);
});

/** More pictures than all playgrounds may submit at once. */
const HELD = 20;

const formOfPerson = async (person: Member) => ({
  csrf: null,
  ...multipartOf({ csrf: await person.token(), once: createSecret() }, pngHeader(4, 3)),
});

test('pictures that are slow to arrive keep nobody out, and pass no allowance when they come at once', async t => {
  const world = await openWorld({ settings: { portal: { accountArea: areaWith(6) } } }, t);
  const { uploads } = world.test.services;
  const { owner, member } = world.ours.people;
  const held = [];
  for (let count = 1; count <= HELD; count += 1) {
    held.push(await owner.hold(PAGE, {}, await formOfPerson(owner)));
    await until(`${count} uploads`, () => uploads.open >= count);
  }
  for (const person of [owner, member, world.theirs.people.owner]) {
    t.is((await person.post(PAGE, {}, await formOfPerson(person))).statusCode, 303);
  }
  const answers = await Promise.all(held.map(form => form.release()));
  const made = answers.filter(({ status }) => status === 303);
  t.is(made.length, 4);
  t.true(answers.every(({ status }) => [303, 429, 503].includes(status)));
  t.is((await world.test.stores.playground.usage(world.ours.accountId)).used, 6);
  t.is((await owner.post(PAGE, {}, await formOfPerson(owner))).statusCode, 429);
  t.is(uploads.open, 0);
});

test('complete pictures are bounded on a replica, and an account has half of them', async t => {
  const world = await openWorld({ settings: { portal: { accountArea: areaWith(100) } } }, t);
  const { submitMatting } = world.test.services;
  const submit = submitMatting.submit.bind(submitMatting);
  const gate = Promise.withResolvers<void>();
  let complete = 0;
  submitMatting.submit = async sent => {
    complete += 1;
    await gate.promise;
    return submit(sent);
  };
  const answered: number[] = [];
  const sending: Promise<unknown>[] = [];
  const post = async (person: Member) => {
    const form = await formOfPerson(person);
    sending.push(person.post(PAGE, {}, form).then(({ statusCode }) => answered.push(statusCode)));
    await until('the picture', () => complete + answered.length === sending.length);
  };
  for (let count = 0; count < 9; count += 1) await post(world.ours.people.owner);
  t.deepEqual([complete, answered], [8, [503]]);
  await post(world.theirs.people.owner);
  t.is(complete, 9);
  gate.resolve();
  await Promise.all(sending);
  t.deepEqual(answered, [503, ...Array(9).fill(303)]);
  const { used } = await world.test.stores.playground.usage(world.ours.accountId);
  t.is(used, 8, 'the refused one is not counted');
});
