/** Needs: portal. */
import ava from 'ava';
import type { Browser } from 'playwright-core';
import { openSource } from '../../control-plane/http/test/loopback-source.ts';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';
import { openPageSite, type PageSite } from './page-site.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutChromium()));

const BAD_PAGE = `<!doctype html><html><title>bad</title>
  <img src="http://elsewhere.example/a.png"><button></button>
  <p style="width: 2000px; color: #777; background: #888">wide and pale</p>
  <script>throw new Error('a script failed')</script></html>`;

let browser: Browser;
let site: PageSite;
ava.serial.before(async () => {
  [browser, site] = await Promise.all([launchChromium(), openPageSite()]);
});
ava.serial.after.always(async () => {
  await browser?.close();
  await site?.close();
});

test('shows the overview to an owner, in the right language', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin], locale: 'zh-CN' });
  await visitor.signInAs(site.ours.people.owner.cookies);
  t.is(await visitor.go('/account/profile'), 200);
  t.is(await visitor.page.getAttribute('html', 'lang'), 'zh-CN');
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

test('names script errors, other hosts, what axe finds and what is too wide', async t => {
  await using server = await openSource((_request, answer) => {
    answer.setHeader('content-type', 'text/html').end(BAD_PAGE);
  });
  const origin = `http://localhost:${server.port}` as const;
  const visitor = await Visitor.open(browser, { origins: [origin], width: 360 });
  t.is(await visitor.go('/'), 200);
  const problems = visitor.takeProblems().join('\n');
  t.regex(problems, /script error: a script failed/);
  t.regex(problems, /asked another host: http:\/\/elsewhere\.example\/a\.png/);
  t.deepEqual(visitor.takeProblems(), []);
  t.true((await visitor.overflow()) > 1000);
  const violations = (await visitor.seriousViolations()).join('\n');
  for (const rule of ['color-contrast', 'html-has-lang', 'image-alt', 'button-name']) {
    t.regex(violations, new RegExp(`^${rule}:`, 'm'));
  }
  await visitor.close();
});
