/** These keep text from becoming markup, and the operator's pages from others. */
import { mutationsOf } from './mutation.ts';

export const PAGE_MUTATIONS = mutationsOf`
file control-plane/portal/page/html.ts
tests control-plane/portal/page/pages.test.ts: views
a page has a link of any scheme
  - if (!SAFE_ADDRESS.test(String(value))) {
  + if (false) {
  = a page with a script as a link is not made
a page has handlers in attributes
  - if (REFUSED.test(name)) throw
  + if (false) throw
  = a page with an inline handler is not made

file control-plane/portal/jobs/thumbnails.ts
tests control-plane/portal/jobs/work.test.ts: jobs
a thumbnail outlives its result
  - if (result === null || publicState(job) !== 'succeeded') throw new PageError('notFound');
  + if (result === null) throw new PageError('notFound');
  = show no thumbnail of a result that is over, though its file is there
viewers see thumbnails
  - return isThere && may(role, 'results.read');
  + return isThere;
  = show the thumbnail of a result where one is, to those who may see results

file control-plane/portal/page/assets.ts
tests control-plane/portal/page/pages.test.ts: pages
an asset is served under the hash of another
  - asset === undefined || asset.hash !== hash
  + asset === undefined
  = an asset under the hash of another release, or outside of the folder, is not there
tests control-plane/portal/page/brand.test.ts: the brand
a logo that is opened by itself runs its script
  - .header('content-security-policy', ASSET_POLICY)
  + 
  = stands on every page, errors too, and its logo runs no script

file control-plane/portal/page/brand.ts
tests control-plane/portal/page/brand.test.ts: the brand
a colour is used for text that cannot be read
  - if (grounds.every(
  + if (true || grounds.every(
  = has a colour that can be read on every ground of both themes

file control-plane/portal/operator-pages/operator-pages.ts
tests control-plane/portal/operator-pages/operator-pages.test.ts: pages of the operator
the operator's forms are taken from other sites
  - URL.canParse(origin) && new URL(origin).host === request.headers.host
  + URL.canParse(origin)
  = changes nothing by a form of another site or another session

file control-plane/portal/operator-pages/operator-sessions.ts
tests control-plane/portal/operator-pages/operator-pages.test.ts: a form of the operator that is held
the operator's session continues after it was signed out
  - nowMs || (await this.#ended.has(hashOf(token)));
  + nowMs;
  = makes nothing once its session was signed out, or is over
tests control-plane/portal/operator-pages/operator-pages.test.ts: a session of the operator
a session of the operator never ends
  - const isOver = Number(endMs) <= nowMs ||
  + const isOver =
  = ends after its hours, with another key, and where a character differs
a session that was signed out is noted nowhere
  - await this.#ended.add(hashOf(token), Number(token.split('.', 1)[0]));
  = that was signed out ends at every control plane, also after a restart

file control-plane/portal/session/guard.ts
tests control-plane/portal/operator-pages/operator-pages.test.ts: pages of the operator
the operator's forms are taken without their token
  - if (!expected || !isSameText(given, expected)) throw new PageError('staleForm');
  = changes nothing by a form of another site or another session
tests control-plane/portal/operator-pages/operator-pages.test.ts: a form of the operator that is held
the operator's session is asked of the headers alone
  - await admitAgain();
  -     if (body
  + if (body
  = makes nothing once its session was signed out, or is over

file control-plane/portal/operator-pages/operator-pages.ts
tests control-plane/portal/operator-pages/operator-pages.test.ts: pages of the operator
the operator key is taken where it can be read on its way
  - throw new PageError('insecure');
  + return false;
  = signs nobody in where the key could be read on its way, or from another site
the operator key is guessed without an end
  - failures.count(networkOf(request.ip));
  = bounds how often a key is guessed from one network, and lets others in
the language leads to another host
  - return BACK.test(text) ? text : OPERATOR_PATH;
  + return text;
  = keeps the language that was chosen, and leads back to no other host

file proto/contract/curl-sample.ts
tests control-plane/portal/documents/samples.test.ts: curl
a job that is not done is written as the picture
  - grep -qx 200 &&
  + grep -q 20 &&
  = fails, says why and leaves no file where no picture came
every picture has one key
  - cut -c1-32
  + cut -c65-96
  = writes the picture, and one picture is paid once

file control-plane/portal/documents/markdown.ts
tests control-plane/portal/documents/documents.test.ts
links of documents lose their places
  - .replaceAll(/[^\w\- ]/g, '')
  + .replaceAll(/[^\w]/g, '')
  = every link among the documents leads to a place on one
`;
