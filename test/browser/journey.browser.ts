/** An owner's way, each step from where the last ended. Needs: portal. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import ava from 'ava';
import type { Browser, Page } from 'playwright-core';
import { Webhook } from 'standardwebhooks';
import { findStackPorts } from '../../bin/stack.ts';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { ROOT, type RunningService, spawnMatting, startService } from '../running-service.ts';
import { at } from '../support/at.ts';
import { OpenIdProvider } from '../support/openid-provider.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { requireTeapot } from '../support/teapot.ts';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutChromium()));

const run = promisify(execFile);
const MAIL = 'ann@example.com';
const PASSWORD = 'seven teapots on a shelf';
const PAYMENT_SECRET = `whsec_${Buffer.alloc(32, 5).toString('base64')}`;
const PHOTO = path.join(ROOT, 'docs/images/demo.jpg');
const FIRST_CREDITS = 1000;
const WAIT_MS = 60_000;

const folder = mkdtempSync(path.join(tmpdir(), 'matting-journey-'));
let browser: Browser;
let origin: string;
let service: RunningService;
let receiver: LoopbackSource;
const told: { readonly headers: Record<string, string>; readonly body: string }[] = [];
let provider: OpenIdProvider;
let visitor: Visitor;
let page: Page;
let token = '';
ava.serial.before(async () => {
  receiver = await openSource(async (request, answer) => {
    told.push({ headers: request.headers as Record<string, string>, body: await text(request) });
    answer.writeHead(204).end();
  });
  const { http } = await findStackPorts();
  origin = `http://localhost:${http}`;
  const redirectUris = [`${origin}/account/sign-in/provider/back`];
  provider = await OpenIdProvider.start({ redirectUris });
  service = await startService({
    MATTING_PORT: String(http),
    MATTING_BASE_URL: origin,
    MATTING_MODELS_OFFERED: 'u2netp,fast',
    MATTING_PAYMENT_SECRET: PAYMENT_SECRET,
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_OIDC_ISSUER: provider.issuer,
    MATTING_OIDC_CLIENT_ID: provider.clientId,
    MATTING_OIDC_CLIENT_SECRET: provider.clientSecret,
    MATTING_OIDC_SCOPES: 'openid,email,groups',
    MATTING_OIDC_GROUPS: 'shop-owners=default:owner',
  });
  browser = await launchChromium();
  visitor = await Visitor.open(browser, { origins: [origin] });
  page = visitor.page;
  page.on('dialog', dialog => void dialog.accept());
});
ava.serial.after.always(async () => {
  await browser?.close();
  await service?.close();
  await receiver?.[Symbol.asyncDispose]();
  await provider?.close();
  rmSync(folder, { recursive: true, force: true });
});

const button = (name: string) => page.getByRole('button', { name, exact: true });
const heading = (name: string) => page.getByRole('heading', { name, level: 1 }).waitFor();

const shareOfOriginal = (canvas: unknown) =>
  (canvas as { style: { getPropertyValue(name: string): string } }).style.getPropertyValue('--cut');

async function curl(
  key: string,
  name: string,
  ...more: string[]
): Promise<{ status: number; out: string }> {
  const out = path.join(folder, `${name}.png`);
  const { stdout } = await run('curl', [
    ...['-sS', '-o', out, '-w', '%{http_code}', `${origin}/v1/matting`],
    ...['-H', `Authorization: Bearer ${key}`, '-H', `Idempotency-Key: ${name}`],
    ...['-H', 'Accept: image/png', '-F', `image_file=@${PHOTO}`],
    ...more,
  ]);
  return { status: Number(stdout), out };
}

async function available(): Promise<number> {
  await visitor.go('/account');
  const text = await page.locator('main').innerText();
  const number = /(?:Available credits|You have)\s+([\d,]+)/.exec(text)?.[1];
  assert.ok(number, text);
  return Number(number.replaceAll(',', ''));
}

test('an invitation leads to a password, and that into the account', async t => {
  const args = ['accounts', 'invite', 'default', MAIL, '--role', 'owner'];
  const { exited, output } = spawnMatting(args, service.env);
  t.is(await exited, 0, output());
  const link = at(/http:\/\/localhost:\d+\/account\S*/.exec(output()) ?? [], 0);
  t.true(link.startsWith(`${origin}/`), link);
  await page.goto(link);
  await heading('Accept the invitation');
  await page.getByLabel('Password').fill('password1234');
  await button('Accept and sign in').click();
  await page.getByText('Many people use this password').waitFor();
  await page.getByLabel('Password').fill(PASSWORD);
  await button('Accept and sign in').click();
  await heading('Overview');
  t.is(await available(), FIRST_CREDITS);
  t.deepEqual(visitor.takeProblems(), []);
  const again = await Visitor.open(browser, { origins: [origin] });
  t.is(await again.go(new URL(link).pathname), 404);
  await again.close();
});

test('signs out, and in again by mail and password', async t => {
  await button('Sign out').click();
  await page.getByText('You are signed out.').waitFor();
  await page.getByLabel('Email').fill(MAIL);
  await page.getByLabel('Password').fill('not it at all');
  await button('Sign in').click();
  await page.getByText('The email or password is incorrect.').waitFor();
  await page.getByLabel('Password').fill(PASSWORD);
  await button('Sign in').click();
  await heading('Overview');
  t.deepEqual(visitor.takeProblems(), []);
});

/** Drops the file from a script, as a browser would after a drag. */
async function dropPhoto(place: string): Promise<void> {
  const photo = (await readFile(PHOTO)).toString('base64');
  const dropped = await page.evaluateHandle(`(() => {
      const bytes = Uint8Array.from(atob(${JSON.stringify(photo)}), one => one.charCodeAt(0));
      const data = new DataTransfer();
      data.items.add(new File([bytes], 'demo.jpg', { type: 'image/jpeg' }));
      return data;
    })()`);
  await page.locator(place).dispatchEvent('drop', { dataTransfer: dropped });
}

test('a picture that is dropped on the first page is cut out in the playground', async t => {
  await visitor.go('/account');
  await dropPhoto('[data-drop-link]');
  await heading('Playground');
  await page.getByRole('link', { name: 'Download' }).waitFor({ timeout: WAIT_MS });
  await page.getByText('Original', { exact: true }).waitFor();
  t.is(await available(), FIRST_CREDITS);
  await visitor.go('/account/playground');
  t.is(await page.locator('.drop .picture').count(), 0, 'it is kept no longer');
  t.deepEqual(visitor.takeProblems(), []);
});

const alphaAt = (x: number, y: number) =>
  page.evaluate<number>(`(async () => {
    const image = document.querySelector('.stage img.picture');
    await image.decode();
    const { naturalWidth: width, naturalHeight: height } = image;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    return context.getImageData(${x} * width, ${y} * height, 1, 1).data[3];
  })()`);

async function eraseLeftHalf(): Promise<void> {
  await page.getByText('Correct the cut-out').click();
  await page.getByText('Erase', { exact: true }).click();
  await page.getByText('Box', { exact: true }).click();
  await page.locator('.painting img').first().waitFor();
  await drawBox('.painter canvas', 0.05, 0.45);
  await page.getByText('1 mark', { exact: true }).waitFor();
}

/** Between shares of the width, over nearly all of the height. */
async function drawBox(place: string, left: number, right: number): Promise<void> {
  const canvas = page.locator(place);
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  assert.ok(box);
  await page.mouse.move(box.x + left * box.width, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + right * box.width, box.y + box.height - 20, { steps: 4 });
  await page.mouse.up();
}

test('a cut-out is corrected by what people paint on it, and costs nothing', async t => {
  await visitor.go('/account/playground');
  await button('Teapot').click();
  await page.getByRole('link', { name: 'Download' }).waitFor({ timeout: WAIT_MS });
  const first = page.url();
  t.true((await alphaAt(0.35, 0.55)) > 200);
  await eraseLeftHalf();
  await page.getByText('Show the call').click();
  t.regex(await page.locator('[data-template] code').innerText(), /erase=\[\{"box":\[\d/);
  t.deepEqual(await visitor.seriousViolations(), []);
  await button('Apply').click();
  await until(() => page.url() !== first, { timeoutMs: WAIT_MS, what: 'the correction is there' });
  const { pathname } = new URL(page.url());
  const corrected = page.locator(`.stage img.picture[src="${pathname}/result"]`);
  await corrected.waitFor({ timeout: WAIT_MS });
  t.is(await alphaAt(0.35, 0.55), 0);
  t.true((await alphaAt(0.6, 0.55)) > 200);
  await page.getByText('Brush', { exact: true }).click();
  await page.locator('.painter canvas[tabindex]').focus();
  // As many dots as the API takes.
  for (let press = 0; press < 2 * 64; press += 1) await page.keyboard.press('Space');
  await page.getByText('One correction takes no more marks.').waitFor();
  t.is(await available(), FIRST_CREDITS);
  t.deepEqual(visitor.takeProblems(), []);
});

test('a key is made, shown once, and cuts a picture out for one credit', async t => {
  await visitor.go('/account/keys/new');
  await page.getByLabel('Name').fill('shop');
  await button('Create key').click();
  await heading('Your new key');
  token = (await page.getByRole('region', { name: 'The key' }).innerText()).trim();
  t.regex(token, /^mk_/);
  await visitor.go('/account/keys');
  t.false((await page.content()).includes(token), 'the key is shown again');
  const { status, out } = await curl(token, 'first');
  t.is(status, 200, await readFile(out, 'utf8'));
  await requireTeapot(await readFile(out));
  t.is(await available(), FIRST_CREDITS - 1);
  t.deepEqual(visitor.takeProblems(), []);
});

test('a key that is rotated has two secrets for a while, and one job for a retry', async t => {
  await visitor.go('/account/keys');
  await page.getByRole('link', { name: 'shop' }).click();
  await page.getByLabel('Works for 1 hour').check();
  await button('Rotate key').click();
  await heading('Your new secret');
  const next = (await page.getByRole('region', { name: 'The key' }).innerText()).trim();
  t.not(next, token);
  // The Idempotency-Key survives the rotation.
  t.is((await curl(next, 'first')).status, 200);
  t.is(await available(), FIRST_CREDITS - 1);
  t.is((await curl(token, 'second')).status, 200);
  t.is((await curl(next, 'third')).status, 200);
  t.is(await available(), FIRST_CREDITS - 3);
  token = next;
});

test('a low balance is told once, signed, to the address of the account', async t => {
  await visitor.go('/account/settings');
  await page.getByLabel('Endpoint URL').fill(`${receiver.url}/told`);
  await button('Save webhook').click();
  const secret = (await page.getByRole('region', { name: 'Signing secret' }).innerText()).trim();
  await visitor.go('/account/settings');
  await page
    .locator('input[name=threshold]')
    .first()
    .fill(String(FIRST_CREDITS - 4));
  await button('Save alerts').click();
  await page.getByText('Alerts saved.').waitFor();
  t.is((await curl(token, 'fourth')).status, 200);
  await until(() => told.length > 0, { timeoutMs: WAIT_MS, what: 'somebody is told' });
  const { body, headers } = at(told, 0);
  const event = new Webhook(secret).verify(body, headers) as {
    readonly type: string;
    readonly data: unknown;
  };
  t.is(event.type, 'account.balance_low');
  t.regex(JSON.stringify(event.data), new RegExp(String(FIRST_CREDITS - 4)));
  await visitor.go('/account/settings');
  await page.getByText(/^Sent/).first().waitFor();
  t.deepEqual(visitor.takeProblems(), []);
});

test('a package is ordered, and a signed notification of its payment brings the credits', async t => {
  const before = await available();
  await visitor.go('/account/orders/packages');
  await page.getByRole('link', { name: /2,500 credits/ }).click();
  await heading('Review your order');
  await page.getByText('Balance after payment').waitFor();
  await button('Place order').click();
  await page.getByText('Waiting for payment').first().waitFor();
  const orderId = new URL(page.url()).pathname.split('/').at(-1) ?? '';
  const data = { order_id: orderId, payment_id: 'pay-1', amount: 5000, currency: 'CNY' };
  const pay = async (amount: number) => {
    const timestamp = new Date();
    const body = JSON.stringify({
      type: 'order.paid',
      timestamp: timestamp.toISOString(),
      data: { ...data, amount },
    });
    const answer = await fetch(`${origin}/account/payments/notifications`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'webhook-id': 'msg_1',
        'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
        'webhook-signature': new Webhook(PAYMENT_SECRET).sign('msg_1', timestamp, body),
      },
      body,
    });
    return answer.status;
  };
  t.is(await pay(1), 400);
  t.is(await available(), before);
  t.is(await pay(5000), 200);
  t.is(await pay(5000), 200);
  t.is(await available(), before + 2500);
  await visitor.go(`/account/orders/${orderId}`);
  await page.getByText('Paid').first().waitFor();
  t.deepEqual(visitor.takeProblems(), []);
});

test('the playground takes a picture that is dropped, and gives the cut-out for no credit', async t => {
  const before = await available();
  await visitor.go('/account/playground');
  await dropPhoto('[data-drop]');
  await page.getByRole('img', { name: 'Chosen picture: demo.jpg' }).waitFor();
  await page.getByRole('radio', { name: /^fast/ }).check();
  await page.locator('#call code', { hasText: 'model=fast' }).first().waitFor();
  await button('Cut out').click();
  await page.getByText(/^(?:Waiting in the queue|Cutting out)…$/).waitFor();
  const link = page.getByRole('link', { name: 'Download' });
  await link.waitFor({ timeout: WAIT_MS });
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  const file = path.join(folder, 'playground.png');
  await download.saveAs(file);
  await requireTeapot(await readFile(file));
  t.regex((await page.locator('.send-row time').getAttribute('title')) ?? '', /UTC$/);
  await page.getByLabel('Black').check();
  await page.getByRole('slider').fill('30');
  t.is(await page.locator('.stage .canvas').evaluate(shareOfOriginal), '30%');
  await page.locator('.stage .canvas').click({ position: { x: 5, y: 50 } });
  t.regex(await page.locator('.stage .canvas').evaluate(shareOfOriginal), /^[0-3](?:\.\d+)?%$/);
  t.is(await available(), before);
  t.deepEqual(visitor.takeProblems(), []);
});

test('the subject is the one in the box that people draw over their picture', async t => {
  await visitor.go('/account/playground');
  const box = page.getByLabel('Subject box');
  await box.fill('half of it');
  await dropPhoto('[data-drop]');
  await page.getByRole('img', { name: 'Chosen picture: demo.jpg' }).waitFor();
  t.is(await box.inputValue(), 'half of it', 'the service refuses it');
  await drawBox('.drop canvas', 0.5, 0.95);
  t.regex(await box.inputValue(), /^(?:49|50)(?:\.\d)?% \d/);
  await page.locator('#call code', { hasText: 'subject_box=' }).first().waitFor();
  t.deepEqual(await visitor.seriousViolations(), []);
  await button('Cut out').click();
  await page.getByRole('link', { name: 'Download' }).waitFor({ timeout: WAIT_MS });
  t.is(await alphaAt(0.35, 0.55), 0);
  t.true((await alphaAt(0.6, 0.55)) > 200);
  t.deepEqual(visitor.takeProblems(), []);
});

test('a job of a key is corrected on its page, over the picture that was sent', async t => {
  const asked = ['-F', 'correctable=true', '-F', 'crop=true', '-F', 'background=white'];
  t.is((await curl(token, 'correctable', ...asked)).status, 200);
  const before = await available();
  await visitor.go('/account/jobs');
  await page.locator('tbody a').first().click();
  await heading('Job');
  const first = page.url();
  await eraseLeftHalf();
  const ground = page.locator('.painting img');
  t.is(await ground.count(), 1, 'a result with a frame of its own fits no picture');
  t.is(await ground.getAttribute('src'), `${new URL(first).pathname}/original`);
  await page.getByText('Show the call').click();
  t.regex(
    await page.locator('[data-template] code').innerText(),
    /corrections'[\s\S]*erase=\[\{"box"/,
  );
  t.deepEqual(await visitor.seriousViolations(), []);
  await button('Apply').click();
  await page.getByText('Corrects').waitFor({ timeout: WAIT_MS });
  t.not(page.url(), first);
  const corrected = new URL(page.url()).pathname;
  await page.getByText('Full size').click({ timeout: WAIT_MS });
  await page.locator('.whole img.picture').waitFor();
  t.is(await available(), before);
  await visitor.go('/account/jobs');
  t.is(await page.locator('tbody a').first().getAttribute('href'), corrected);
  t.deepEqual(visitor.takeProblems(), []);
});

test('a key that is revoked is refused', async t => {
  await visitor.go('/account/keys');
  await page.getByRole('link', { name: 'shop' }).click();
  await button('Revoke key').click();
  await page.getByText('Key revoked.').waitFor();
  // The control plane that revoked it forgets it at once, others within a second.
  t.is((await curl(token, 'late')).status, 401);
});

test('everything that changed is in the log, and no secret with it', async t => {
  await visitor.go('/account/audit');
  const log = await page.locator('main').innerText();
  t.regex(log, /ann@example\.com/);
  t.true(!log.includes(token) && !log.includes(PASSWORD) && !log.includes(PAYMENT_SECRET));
  t.deepEqual(visitor.takeProblems(), []);
});

test('a person of the provider is let in by their group, and out when they have lost it', async t => {
  const signIn = async () => {
    const other = await Visitor.open(browser, { origins: [origin, provider.issuer] });
    await other.go('/account/sign-in');
    await other.page.getByRole('link', { name: /SSO/ }).click();
    await other.page.getByLabel('Subject').fill('zoe');
    await other.page.getByRole('button', { name: 'Continue' }).click();
    return other;
  };
  // A known mail address must not make her another person.
  provider.people.set('zoe', { email: MAIL, groups: ['shop-owners'] });
  const zoe = await signIn();
  await zoe.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await visitor.go('/account/people');
  const people = await page.locator('main').innerText();
  t.is(people.split(MAIL).length - 1, 2, people);
  t.regex(people, /by a group of your identity provider/);
  provider.people.set('zoe', { email: MAIL, groups: [] });
  const again = await signIn();
  await again.page.getByText('You are not a member of any account.').waitFor();
  await zoe.go('/account');
  await zoe.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  t.deepEqual(zoe.takeProblems(), []);
  await zoe.close();
  await again.close();
});

test('the link that the start prints signs in', async t => {
  const link = /http:\/\/localhost:\d+\/account\/links\/\S+/.exec(service.output())?.[0];
  assert.ok(link, service.output());
  const other = await Visitor.open(browser, { origins: [origin] });
  await other.page.goto(link);
  await other.page.getByRole('button', { name: 'Sign in' }).click();
  await other.page.getByRole('heading', { name: 'Overview' }).waitFor();
  t.deepEqual(other.takeProblems(), []);
  await other.close();
});
