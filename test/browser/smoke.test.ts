/** One quick visit: a person who is signed in sees their account, in a real browser. */
import ava from 'ava';
import type { Browser } from 'playwright-core';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor } from './chromium.ts';
import { PageSite } from './page-site.ts';

const test = ava.serial;

let browser: Browser;
let site: PageSite;
test.before(async () => {
  [browser, site] = await Promise.all([launchChromium(), PageSite.start()]);
});
test.after.always(async () => {
  await browser?.close();
  await site?.close();
});

test.skipIf(isNotTested(skipWithoutChromium()))(
  'shows the overview to an owner, in the right language',
  async t => {
    const visitor = await Visitor.open(browser, { origins: [site.origin], locale: 'zh-CN' });
    await visitor.signInAs(site.ours.people.owner.cookies);
    t.is(await visitor.go('/account/profile'), 200);
    t.is(await visitor.page.getAttribute('html', 'lang'), 'zh-CN');
    t.deepEqual(visitor.takeProblems(), []);
    await visitor.close();
  },
);
