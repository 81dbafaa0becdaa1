/** What drives the browser tells what it is there to tell: a page that does it all wrong is named. */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';

const BAD_PAGE = `<!doctype html><html><title>bad</title>
  <img src="http://elsewhere.example/a.png"><button></button>
  <p style="width: 2000px; color: #777; background: #888">wide and pale</p>
  <script>throw new Error('a script failed')</script></html>`;

describe('a visitor in Chromium', { skip: skipWithoutChromium() }, () => {
  let browser: Browser;
  let server: Server;
  before(async () => {
    browser = await launchChromium();
    server = createServer((_request, answer) => {
      answer.setHeader('content-type', 'text/html');
      answer.end(BAD_PAGE);
    }).listen(0, '127.0.0.1');
    await new Promise(resolve => server.once('listening', resolve));
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });

  it('names script errors, other hosts, what axe finds and what is too wide', async () => {
    const origin = `http://localhost:${(server.address() as AddressInfo).port}` as const;
    const visitor = await Visitor.open(browser, { origins: [origin], width: 360 });
    assert.equal(await visitor.go('/'), 200);
    const problems = visitor.takeProblems().join('\n');
    assert.match(problems, /script error: a script failed/);
    assert.match(problems, /asked another host: http:\/\/elsewhere\.example\/a\.png/);
    visitor.requireNoProblems();
    assert.ok((await visitor.overflow()) > 1000);
    const violations = (await visitor.seriousViolations()).join('\n');
    for (const rule of ['color-contrast', 'html-has-lang', 'image-alt', 'button-name']) {
      assert.match(violations, new RegExp(`^${rule}:`, 'm'));
    }
    await visitor.close();
  });
});
