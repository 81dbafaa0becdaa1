/** One quick visit: a person who is signed in sees their account, in a real browser. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Browser } from 'playwright-core';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';
import { PageSite } from './page-site.ts';

describe('the account area in Chromium', { skip: skipWithoutChromium() }, () => {
  let browser: Browser;
  let site: PageSite;
  before(async () => {
    [browser, site] = await Promise.all([launchChromium(), PageSite.start()]);
  });
  after(async () => {
    await browser?.close();
    await site?.close();
  });

  it('shows the overview to an owner, in the right language', async () => {
    const visitor = await Visitor.open(browser, { origins: [site.origin], locale: 'zh-CN' });
    await visitor.signInAs(site.ours.people.owner.cookies);
    assert.equal(await visitor.go('/account/profile'), 200);
    assert.equal(await visitor.page.getAttribute('html', 'lang'), 'zh-CN');
    visitor.requireNoProblems();
    await visitor.close();
  });
});
