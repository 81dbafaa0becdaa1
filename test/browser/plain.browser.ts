/** Without scripts, by keyboard. Needs: portal. */
import assert from 'node:assert/strict';
import ava from 'ava';
import type { Browser, Page } from 'playwright-core';
import { type Registered, registerPerson } from '../../control-plane/portal/test/area/sign-in.ts';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';
import { openPageSite, type PageSite } from './page-site.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutChromium()));

/** More than any page has focusable elements. */
const TABS_MAX = 80;

let browser: Browser;
let site: PageSite;
let known: Registered;
ava.serial.before(async () => {
  [browser, site] = await Promise.all([launchChromium(), openPageSite()]);
  known = await registerPerson(site, 'owner');
});
ava.serial.after.always(async () => {
  await browser?.close();
  await site?.close();
});

const heading = (page: Page, name: string) =>
  page.getByRole('heading', { name, level: 1 }).waitFor();

test('works without scripts', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin], scripts: false });
  const { page } = visitor;
  await visitor.go('/account/keys');
  await page.getByLabel('Email').fill(known.mail);
  await page.getByLabel('Password').fill(known.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await heading(page, 'API keys');
  await page.getByRole('link', { name: 'Create key' }).first().click();
  await page.getByLabel('Name').fill('plain');
  await page.getByRole('button', { name: 'Create key' }).click();
  const token = await page.getByRole('region', { name: 'The key' }).innerText();
  t.regex(token.trim(), /^mk_/);
  await visitor.go('/account/orders/packages');
  await page.getByRole('link', { name: /2,500 credits/ }).click();
  await page.getByRole('button', { name: 'Place order' }).click();
  await page.getByText('Order placed.').waitFor();
  await page.getByRole('button', { name: 'Cancel order' }).click();
  await page.getByText('Order cancelled.').waitFor();
  await visitor.go('/account/playground');
  t.regex(await page.locator('.send-row').innerText(), /Resets at .* UTC\./);
  await page.getByRole('button', { name: 'Rubber duck' }).click();
  await page.waitForURL(/\/playground\/[0-9a-f-]{36}/);
  await page.getByText('Waiting in the queue…').first().waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByText('You are signed out.').waitFor();
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

const focused = (page: Page) =>
  page.evaluate<string>(`(() => {
      const element = document.activeElement;
      const label = element.labels?.[0]?.innerText;
      const name = element.getAttribute('aria-label') ?? label ?? element.innerText ?? '';
      return element.tagName.toLowerCase() + ' ' + name.trim();
    })()`);

/** Requires that each element on the way is visible. */
async function tabTo(page: Page, wanted: RegExp): Promise<void> {
  const passed: string[] = [];
  for (let tabs = 0; tabs < TABS_MAX; tabs += 1) {
    const now = await focused(page);
    if (wanted.test(now)) {
      const seen = await page.evaluate<boolean>(`(() => {
          const style = getComputedStyle(document.activeElement);
          return style.outlineStyle !== 'none' || style.boxShadow !== 'none';
        })()`);
      assert.ok(seen, `the focus on ${now} is not seen`);
      return;
    }
    passed.push(now);
    await page.keyboard.press('Tab');
  }
  assert.fail(`${wanted} is Not reached by the keyboard: ${passed.join(', ')}`);
}

test('works by the keyboard alone', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin] });
  const { page } = visitor;
  await visitor.go('/account/sign-in');
  await tabTo(page, /^input Email/);
  await page.keyboard.type(known.mail);
  await tabTo(page, /^input Password/);
  await page.keyboard.type(known.password);
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/account$/);
  await tabTo(page, /^a Skip to content/);
  await tabTo(page, /^a API keys/);
  await page.keyboard.press('Enter');
  await heading(page, 'API keys');
  await tabTo(page, /^a Create key/);
  await page.keyboard.press('Enter');
  await heading(page, 'New API key');
  await tabTo(page, /^input Name/);
  await page.keyboard.type('by keyboard');
  await tabTo(page, /^button Create key/);
  await page.keyboard.press('Enter');
  await heading(page, 'Your new key');
  await tabTo(page, /^button .*Sign out/);
  await page.keyboard.press('Enter');
  await page.getByText('You are signed out.').waitFor();
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});
