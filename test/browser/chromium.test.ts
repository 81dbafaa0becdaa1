/** What drives the browser tells what it is there to tell: a page that does it all wrong is named. */
import ava from 'ava';
import type { Browser } from 'playwright-core';
import {
  type LoopbackSource,
  openSource,
} from '../../control-plane/test/sources/loopback-source.ts';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';

const test = ava.serial;

const BAD_PAGE = `<!doctype html><html><title>bad</title>
  <img src="http://elsewhere.example/a.png"><button></button>
  <p style="width: 2000px; color: #777; background: #888">wide and pale</p>
  <script>throw new Error('a script failed')</script></html>`;

let browser: Browser;
let server: LoopbackSource;
test.before(async () => {
  browser = await launchChromium();
  server = await openSource((_request, answer) => {
    answer.setHeader('content-type', 'text/html');
    answer.end(BAD_PAGE);
  });
});
test.after.always(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

test.skipIf(isNotTested(skipWithoutChromium()))(
  'names script errors, other hosts, what axe finds and what is too wide',
  async t => {
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
  },
);
