/** The test plays the node. Needs: portal. */
import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import type { Browser, Page } from 'playwright-core';
import sharp from 'sharp';
import { submitJob } from '../../control-plane/portal/test/area/things.ts';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor, type VisitorOptions } from './chromium.ts';
import { openPageSite, type PageSite } from './page-site.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutChromium()));

const SIZE = { width: 400, height: 300 };
const PLAYGROUND = '/account/playground';
type CutOut = ReturnType<typeof Buffer.from>;

let browser: Browser;
let site: PageSite;
let both: CutOut;
let left: CutOut;
ava.serial.before(async () => {
  [browser, site] = await Promise.all([launchChromium(), openPageSite()]);
  [both, left] = await Promise.all([thingsAt(40, 240), thingsAt(40)]);
});
ava.serial.after.always(async () => {
  await browser?.close();
  await site?.close();
});

/** 120 x 200 pixels each, at these distances from the left. */
async function thingsAt(...lefts: number[]): Promise<CutOut> {
  const channels = 4;
  const thing = sharp({ create: { width: 120, height: 200, channels, background: 'teal' } });
  const input = await thing.png().toBuffer();
  const empty = sharp({ create: { ...SIZE, channels, background: '#0000' } });
  const all = empty.composite(lefts.map(at => ({ input, left: at, top: 50 })));
  return Buffer.from(await all.png().toBuffer());
}

async function openOwner(t: ExecutionContext, more: Partial<VisitorOptions> = {}) {
  const visitor = await Visitor.open(browser, { ...more, origins: [site.origin] });
  t.teardown(() => visitor.close());
  await visitor.signInAs(site.ours.people.owner.cookies);
  return visitor;
}

const idIn = (text: string) => {
  const [id] = /[0-9a-f-]{36}/.exec(text) ?? [];
  assert.ok(id, text);
  return id;
};

async function succeed(id: string, cutOut: CutOut): Promise<void> {
  site.test.sight = { inputWidth: SIZE.width, inputHeight: SIZE.height, subject: null };
  await site.test.succeedJob(id, cutOut);
  site.test.sight = null;
}

async function sending(page: Page, act: () => Promise<void>): Promise<string> {
  const answer = page.waitForResponse(one => one.request().method() === 'POST');
  await act();
  return idIn((await answer).headers().location ?? '');
}

const press = async (page: Page, ...keys: string[]) => {
  for (const key of keys) await page.keyboard.press(key);
};
const times = (count: number, key: string) => Array<string>(count).fill(key);
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const status = (page: Page) => page.locator('.painter [role=status]');
const saying = (page: Page, text: string | RegExp) =>
  status(page).filter({ hasText: text }).waitFor();
const shapes = async (page: Page, kind: 'keep' | 'erase') =>
  JSON.parse((await page.locator(`.painter [name=${kind}]`).inputValue()) || '[]');
const focused = (page: Page) =>
  page.evaluate<string>(`(({ tagName, id, textContent, value }) =>
    [tagName, id, value ?? '', tagName === 'BUTTON' ? textContent : ''].filter(Boolean).join(' ')
  )(document.activeElement)`);

async function openPainter(page: Page): Promise<string> {
  await page.goto(`${site.origin}${PLAYGROUND}`);
  const id = await sending(page, () => button(page, 'Teapot').click());
  await succeed(id, both);
  await page.getByText('Correct the cut-out').click();
  await page.locator('.painting .over').waitFor();
  return id;
}

/** By keys alone. The focus ends on the canvas. */
async function eraseRight(page: Page): Promise<void> {
  await page.locator('.painter [value=erase]').focus();
  await press(page, 'Space', 'Tab', 'Tab');
  assert.equal(await focused(page), 'CANVAS');
  // From the middle in twentieths of the longer side: two corners around the thing.
  await press(page, ...times(8, 'Shift+ArrowRight'), ...times(6, 'Shift+ArrowDown'));
  await page.keyboard.down('Space');
  await press(page, ...times(8, 'Shift+ArrowLeft'), ...times(11, 'Shift+ArrowUp'));
  await page.keyboard.up('Space');
}

test('all of the painter is used by the keyboard', async t => {
  const visitor = await openOwner(t);
  const { page } = visitor;
  await openPainter(page);
  await eraseRight(page);
  t.deepEqual(await shapes(page, 'erase'), [{ box: [200, 50, 360, 270] }]);
  await saying(page, '1 mark');
  await page.locator('.painter [value=keep]').focus();
  await press(page, 'Space', 'Tab', 'ArrowRight', 'Tab', 'ArrowRight', 'Tab');
  t.is(await focused(page), 'CANVAS');
  // A press without a move leaves the brush down; Enter works as Space.
  await press(page, 'Enter', ...times(10, 'ArrowLeft'), 'Enter', ...times(10, 'ArrowUp'));
  const [stroke] = await shapes(page, 'keep');
  t.deepEqual([stroke.radius, stroke.line.at(0), stroke.line.length > 1], [14, [200, 50], true]);
  await press(page, 'Space', 'ArrowRight', 'Escape');
  await saying(page, '2 marks');
  await press(page, 'Control+z', 'Control+z');
  t.deepEqual([await shapes(page, 'keep'), await shapes(page, 'erase')], [[], []]);
  await press(page, 'Control+y', 'Control+Shift+Z', 'Control+y');
  t.deepEqual([(await shapes(page, 'keep')).length, (await shapes(page, 'erase')).length], [1, 1]);
  await press(page, 'Tab', 'Tab');
  t.is(await focused(page), 'BUTTON Undo');
  await press(page, 'Space', 'Space', 'Space');
  t.is(await focused(page), 'BUTTON Undo', 'it is of no use now, and keeps the focus');
  await press(page, 'Shift+Tab', 'Space');
  await saying(page, 'Mark a part of the picture first.');
  t.deepEqual(await visitor.seriousViolations(), []);
  t.deepEqual(visitor.takeProblems(), []);
});

const changedAt = (page: Page, x: number, y: number) =>
  page.evaluate<number>(`(() => {
    const sheet = document.querySelector('.changed');
    const scale = sheet.width / ${SIZE.width};
    return sheet.getContext('2d').getImageData(${x} * scale, ${y} * scale, 1, 1).data[3];
  })()`);

test('a correction says what goes on, then shows what changed, and leaves the rest as it was', async t => {
  const visitor = await openOwner(t);
  const { page } = visitor;
  const first = await openPainter(page);
  await page.locator('.stage').getByRole('slider').fill('30');
  await page.getByLabel('Black').check();
  await eraseRight(page);
  const id = await sending(page, () => press(page, 'Tab', 'Enter'));
  await saying(page, 'Waiting in the queue');
  const bar = page.getByRole('progressbar');
  t.deepEqual([await bar.isVisible(), await bar.getAttribute('aria-valuenow')], [true, null]);
  await press(page, 'Control+z', 'Enter');
  t.is((await shapes(page, 'erase')).length, 1, 'what was sent stays as it was sent');
  const claim = await site.test.startJob(id);
  await saying(page, 'Looking at the marked area');
  site.test.sight = { inputWidth: SIZE.width, inputHeight: SIZE.height, subject: null };
  await site.test.succeedJob(id, left, undefined, claim);
  await saying(page, 'What changed is pink');
  t.deepEqual([await changedAt(page, 300, 150), await changedAt(page, 100, 150)], [190, 0]);
  t.is(await animation(page), 'none', 'the visitor wants no motion');
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  t.is(await animation(page), 'changed');
  t.deepEqual([await bar.isVisible(), await focused(page)], [false, 'BUTTON Apply']);
  t.deepEqual(await shapes(page, 'erase'), []);
  t.is(await page.locator('.stage').getByRole('slider').inputValue(), '30');
  t.true(await page.getByLabel('Black').isChecked());
  t.regex(page.url(), new RegExp(`${PLAYGROUND}/${id}`));
  const shown = page.locator(`.stage img.picture[src="${PLAYGROUND}/${id}/result"]`);
  t.is(await shown.count(), 1);
  await page.locator('.changed').waitFor({ state: 'detached' });
  t.is((await site.test.stores.jobs.find(id))?.correction?.of, first);
  t.deepEqual(visitor.takeProblems(), []);
});

const animation = (page: Page) =>
  page.evaluate<string>(`getComputedStyle(document.querySelector('.changed')).animationName`);

test('the next correction begins with the cut-out before, once people went back to it', async t => {
  const visitor = await openOwner(t);
  const { page } = visitor;
  const first = await openPainter(page);
  const back = page.getByRole('link', { name: 'Back to the previous cut-out' });
  t.false(await back.isVisible());
  const apply = async (cutOut: CutOut) => {
    await eraseRight(page);
    const id = await sending(page, () => button(page, 'Apply').click());
    await succeed(id, cutOut);
    return id;
  };
  const second = await apply(left);
  await saying(page, 'What changed is pink');
  await back.focus();
  await press(page, 'Enter');
  await page.waitForURL(new RegExp(first));
  await saying(page, 'What changed is pink');
  t.deepEqual([await back.isVisible(), await focused(page)], [false, 'CANVAS']);
  const third = await apply(both);
  await saying(page, 'nothing changed');
  const { jobs } = site.test.stores;
  t.deepEqual(
    [(await jobs.find(second))?.correction?.of, (await jobs.find(third))?.correction?.of],
    [first, first],
  );
  await page.goBack();
  await page.locator(`form.painter[action*="${first}"]`).waitFor({ state: 'attached' });
  await page.goBack();
  await page.locator(`form.painter[action*="${second}"]`).waitFor({ state: 'attached' });
  t.deepEqual(visitor.takeProblems(), []);
});

test('marks stay if their correction is refused or fails, and can be sent again', async t => {
  const visitor = await openOwner(t);
  const { page } = visitor;
  const first = await openPainter(page);
  await eraseRight(page);
  await page.route('**/corrections*', route => route.abort(), { times: 1 });
  await button(page, 'Apply').click();
  await saying(page, 'Check your connection');
  const failed = await sending(page, () => button(page, 'Apply').click());
  await site.test.failJob(failed, { code: 'PROCESSING_FAILED', detail: 'none', retryable: true });
  await saying(page, 'This picture was not counted.');
  const kysely = site.test.database.kysely;
  const spent = (corrections: number) =>
    kysely.updateTable('jobs').set({ corrections }).where('id', '=', first).execute();
  await spent(20);
  await button(page, 'Apply').click();
  await saying(page, 'This cut-out takes no more corrections.');
  await spent(2);
  const again = await sending(page, () => button(page, 'Apply').click());
  t.not(again, failed);
  t.is((await shapes(page, 'erase')).length, 1);
  t.regex(page.url(), new RegExp(first));
  await succeed(again, left);
  await saying(page, 'What changed is pink');
  t.deepEqual(visitor.takeProblems(), []);
});

test('a job of a key is corrected in place on its page', async t => {
  const visitor = await openOwner(t);
  const { page } = visitor;
  const { token } = await site.test.stores.apiKeys.create(site.ours.accountId, 'shop');
  const first = await submitJob(site.test, token, { correctable: true });
  await succeed(first, both);
  await visitor.go(`/account/jobs/${first}`);
  await page.getByText('Correct the cut-out').click();
  await page.locator('.painting img').first().waitFor();
  await eraseRight(page);
  const id = await sending(page, () => press(page, 'Tab', 'Enter'));
  await succeed(id, left);
  await saying(page, 'What changed is pink');
  t.is(await focused(page), 'BUTTON Apply');
  t.is(new URL(page.url()).pathname, `/account/jobs/${id}`);
  await page.getByRole('heading', { name: id.slice(0, 8) }).waitFor();
  await page.getByRole('link', { name: first.slice(0, 8) }).waitFor();
  t.true(await page.locator('.copied .copy').first().isVisible(), 'scripts serve what came');
  t.deepEqual(visitor.takeProblems(), []);
});

test('each step of the playground leaves the focus where it goes on, and forgets what was wrong', async t => {
  const { page } = await openOwner(t);
  await page.goto(`${site.origin}${PLAYGROUND}`);
  const cutOut = button(page, 'Cut out');
  const notice = page.getByText('Check the marked fields.');
  const marked = page.locator('#try :is([aria-invalid], .error, .wrong)');
  const ofFocus = (name: string) => page.evaluate(`document.activeElement.${name}`);
  t.is(await cutOut.getAttribute('aria-disabled'), 'true');
  await cutOut.press('Enter');
  t.is(await focused(page), 'INPUT image_file', 'the browser asks for a picture');
  for (const bytes of [Buffer.from('no picture'), both]) {
    const file = { name: 'a.png', mimeType: 'image/png', buffer: Buffer.from(bytes) };
    await page.locator('#image_file').setInputFiles(file);
    t.deepEqual([await notice.count(), await marked.count()], [0, 0]);
    if (bytes === both) await page.getByLabel('Background colour').fill('x');
    await cutOut.press('Enter');
    await notice.waitFor();
    t.is(await ofFocus('ariaInvalid'), 'true');
  }
  await page.getByLabel('Background colour').fill('white');
  const id = await sending(page, () => cutOut.press('Enter'));
  t.is(await ofFocus('dataset.state'), 'queued');
  await succeed(id, both);
  await page.getByRole('link', { name: 'Download' }).waitFor();
  t.is(await ofFocus('dataset.state'), 'succeeded');
  await press(page, 'Tab');
  t.is(await ofFocus('ariaLabel'), 'Share of the original that you see, in percent');
});

test('the time that is left is counted down, and what goes beyond it is counted up', async t => {
  const { page } = await openOwner(t);
  await page.clock.install();
  await page.goto(`${site.origin}${PLAYGROUND}`);
  await page.evaluate(`document.getElementById('playground-form').dataset.seconds = '{"":1.4}'`);
  await site.test.startJob(await sending(page, () => button(page, 'Teapot').click()));
  await page.clock.runFor(1000);
  await page.getByText('Cutting out…').waitFor();
  const order = ['about 2 s left', 'about 1 s left', '2 s so far', '3 s so far', '4 s so far'];
  const seen: number[] = [];
  for (const _ of [1, 2, 3]) {
    const text = await page.locator('#outcome [data-seconds]').textContent();
    seen.push(order.indexOf(text ?? ''));
    await page.clock.runFor(1000);
  }
  // The page's clock runs between the steps.
  const [first, second, third] = seen as [number, number, number];
  t.true(0 <= first && first < second && second < third && third >= 2, `${seen}`);
});

for (const theme of ['light', 'dark'] as const) {
  test(`the painter fits into small and large windows, ${theme}`, async t => {
    const visitor = await openOwner(t, { theme });
    const { page } = visitor;
    await openPainter(page);
    for (const width of [360, 768, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      t.is(await visitor.overflow(), 0, `${width}`);
      const places = ['Apply', 'Undo', 'Redo'].map(name => button(page, name).boundingBox());
      const tops = (await Promise.all(places)).map(box => box?.y);
      t.is(new Set(tops).size, 1, `one row at ${width}: ${tops}`);
    }
    t.deepEqual(await visitor.seriousViolations(), []);
    t.deepEqual(visitor.takeProblems(), []);
  });
}
