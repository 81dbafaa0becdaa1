import type { CurlCall } from '@matting/proto/contract/curl-sample.ts';
import { shortCurl } from '@matting/proto/contract/curl-sample.ts';
import type { VNode } from 'preact';
import { html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import type { Words } from '../words/words.ts';
import { codeSamples } from './samples.ts';

export function callBlocks(call: CurlCall, common: Words['common'], label: string): VNode {
  const others = codeSamples(call).map(
    ({ name, text }) => html`<details><summary>${name}</summary>
      ${ui.codeBlock(text, common, `${label}: ${name}`)}</details>`,
  );
  return html`<div class="stack">${ui.codeBlock(shortCurl(call), common, label)}
    <p class="soft">${common.oneKeyPerPicture}</p>
    <details><summary>${common.otherCalls}</summary><div class="stack">${others}</div></details>
  </div>`;
}
