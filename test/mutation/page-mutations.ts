/** What keeps text from becoming markup, and the operator's pages from others. */
import { inFile, type Mutation } from './mutation.ts';

const HTML = 'control-plane/src/http/account/page/html.ts';
const GUARD = 'control-plane/src/http/account/session/guard.ts';
const ASSETS = 'control-plane/src/http/account/page/assets.ts';
const OPERATOR = 'control-plane/src/http/operator-pages';

const inViews = inFile('control-plane/test/http/account/views.test.ts');
const inPages = inFile('control-plane/test/http/account/page.test.ts');
const SESSION_TESTS = 'control-plane/test/http/operator-session.test.ts';
const inOperatorSession = inFile(SESSION_TESTS, 'a form of the operator that is held');
const OPERATOR_TESTS = 'control-plane/test/http/operator-pages.test.ts';
const inOperator = inFile(OPERATOR_TESTS, "the operator's pages on sqlite");
const inSession = inFile(SESSION_TESTS, 'a session of the operator');

export const PAGE_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a page has a link of any scheme',
    file: HTML,
    find: 'if (!SAFE_ADDRESS.test(String(value))) {',
    replace: 'if (false) {',
    caughtBy: inViews('a page with a script as a link is not made'),
  },
  {
    name: 'a page has handlers in attributes',
    file: HTML,
    find: 'if (REFUSED.test(name)) throw',
    replace: 'if (false) throw',
    caughtBy: inViews('a page with an inline handler is not made'),
  },
  {
    name: 'an asset is served under the hash of another',
    file: ASSETS,
    find: 'asset === undefined || asset.hash !== hash',
    replace: 'asset === undefined',
    caughtBy: inPages(
      'an asset under the hash of another release, or outside of the folder, is not there',
    ),
  },
  {
    name: "the operator's forms are taken from other sites",
    file: `${OPERATOR}/operator-session.ts`,
    find: 'URL.canParse(origin) && new URL(origin).host === request.headers.host',
    replace: 'URL.canParse(origin)',
    caughtBy: inOperator('changes nothing by a form of another site or another session'),
  },
  {
    name: "the operator's forms are taken without their token",
    file: GUARD,
    find: "if (!expected || !isSameText(given, expected)) throw new PageError('staleForm');",
    replace: '',
    caughtBy: inOperator('changes nothing by a form of another site or another session'),
  },
  {
    name: "the operator's session goes on after it was signed out",
    file: `${OPERATOR}/operator-session.ts`,
    find: " || this.#ended.has(token ?? '')",
    replace: '',
    caughtBy: inOperatorSession('makes nothing once its session was signed out, or is over'),
  },
  {
    name: "the operator's session is asked of the headers alone",
    file: GUARD,
    find: 'await admitAgain();\n    if (body',
    replace: 'if (body',
    caughtBy: inOperatorSession('makes nothing once its session was signed out, or is over'),
  },
  {
    name: 'the operator key is taken where it can be read on its way',
    file: `${OPERATOR}/sign-in-pages.ts`,
    find: "throw new PageError('insecure');",
    replace: 'return false;',
    caughtBy: inOperator(
      'signs nobody in where the key could be read on its way, or from another site',
    ),
  },
  {
    name: 'the operator key is guessed without an end',
    file: `${OPERATOR}/sign-in-pages.ts`,
    find: 'failures.count(networkOf(request.ip));',
    replace: '',
    caughtBy: inOperator('bounds how often a key is guessed from one network, and lets others in'),
  },
  {
    name: 'a session of the operator never ends',
    file: `${OPERATOR}/operator-session.ts`,
    find: 'const isOver = Number(endMs) <= nowMs || ',
    replace: 'const isOver = ',
    caughtBy: inSession('ends after its hours, with another key, and where a character differs'),
  },
  {
    name: 'the language leads to another host',
    file: `${OPERATOR}/sign-in-pages.ts`,
    find: 'return BACK.test(text) ? text : OPERATOR_PATH;',
    replace: 'return text;',
    caughtBy: inOperator('keeps the language that was chosen, and leads back to no other host'),
  },
];
