import { h } from 'preact';
import { renderToString } from 'preact-render-to-string';
import type { Child } from '../page/html.ts';

export function renderPart(part: Child): string {
  return renderToString(h('div', null, part)).slice('<div>'.length, -'</div>'.length);
}
