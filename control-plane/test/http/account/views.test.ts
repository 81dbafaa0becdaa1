/** What hostile text does to a page: nothing. And what a page must not have is refused. */
import test from 'ava';
import { barChart } from '../../../src/http/account/page/chart.ts';
import {
  button,
  checkbox,
  checkboxGroup,
  copyButton,
  filterForm,
  linkButton,
  postForm,
  radioGroup,
  selectField,
  textArea,
  textField,
} from '../../../src/http/account/page/forms.ts';
import { type Child, html, MarkupError, renderPart } from '../../../src/http/account/page/html.ts';
import {
  badge,
  codeBlock,
  dataTable,
  definitionList,
  emptyState,
  figures,
  notice,
  pager,
  panel,
  section,
  tabs,
  time,
  withQuery,
} from '../../../src/http/account/page/lists.ts';
import { wordsIn } from '../../../src/http/account/words/words.ts';

/** Breaks out of text, of an attribute in either quotes, of a textarea, a title and a comment. */
const HOSTILE = `"'></textarea></title><!--<script>x</script><img src=x onerror=alert(1)>&lt;\u0000`;
const words = wordsIn('en').common;
const field = { name: 'n', label: HOSTILE, hint: HOSTILE, error: HOSTILE, note: HOSTILE };
const option = { value: HOSTILE, label: HOSTILE, hint: HOSTILE };
const copy = { copy: HOSTILE, copied: HOSTILE };

const COMPONENTS: Readonly<Record<string, () => Child>> = {
  badge: () => badge(HOSTILE, 'bad'),
  button: () => button({ label: HOSTILE, value: HOSTILE, confirm: HOSTILE, describe: HOSTILE }),
  linkButton: () => linkButton({ href: `/account?q=${HOSTILE}`, label: HOSTILE }),
  copyButton: () => copyButton(HOSTILE, copy),
  codeBlock: () => codeBlock(HOSTILE, copy, HOSTILE),
  notice: () => notice('bad', HOSTILE, html`<p title=${HOSTILE}>${HOSTILE}</p>`),
  emptyState: () => emptyState({ title: HOSTILE, text: HOSTILE, action: HOSTILE }),
  time: () => time(0, () => HOSTILE),
  textField: () => textField({ ...field, value: HOSTILE, placeholder: HOSTILE }),
  textArea: () => textArea({ ...field, value: HOSTILE }),
  selectField: () => selectField({ ...field, options: [option], value: HOSTILE }),
  checkbox: () => checkbox({ ...field, checked: true }),
  checkboxGroup: () => checkboxGroup({ ...field, options: [option], values: [HOSTILE] }),
  radioGroup: () => radioGroup({ ...field, options: [option], value: HOSTILE }),
  postForm: () =>
    postForm({ action: '/x', csrf: HOSTILE, hidden: { [HOSTILE.slice(0, 0)]: HOSTILE } }, HOSTILE),
  filterForm: () => filterForm('/x', HOSTILE),
  dataTable: () => dataTable({ caption: HOSTILE, columns: [HOSTILE], rows: [[HOSTILE]] }),
  definitionList: () => definitionList([[HOSTILE, HOSTILE]]),
  figures: () => figures([{ label: HOSTILE, value: HOSTILE, note: HOSTILE }]),
  pager: () => pager(words, '/x', { next: HOSTILE, after: HOSTILE }, { q: HOSTILE }),
  tabs: () => tabs(HOSTILE, [{ href: '/x', label: HOSTILE, active: true }]),
  section: () => section({ title: HOSTILE, lead: HOSTILE, actions: HOSTILE }, HOSTILE),
  panel: () => panel(HOSTILE),
  barChart: () =>
    barChart({
      title: HOSTILE,
      series: [HOSTILE, HOSTILE],
      bars: [{ label: HOSTILE, shortLabel: HOSTILE, values: [1, 2] }],
      format: () => HOSTILE,
      tableLabel: HOSTILE,
      barLabel: HOSTILE,
    }),
};

for (const [name, make] of Object.entries(COMPONENTS)) {
  test(`${name} shows hostile text as text`, t => {
    const text = renderPart(make());
    t.notRegex(text, /<script|<img|<!--|<\/title><!/i);
    // In an attribute a quote would end it.
    for (const [, value = ''] of text.matchAll(/="([^"]*)"/g)) t.notRegex(value, /[<"]/);
    t.is(text.match(/<\/textarea>/g)?.length ?? 0, name === 'textArea' ? 1 : 0);
    t.true(text.includes('&lt;script') || text.includes('%3Cscript') || name === 'time', text);
  });
}

for (const [name, make] of [
  ['style', () => html`<p style=${'color:red'}></p>`],
  ['an inline handler', () => html`<p onclick=${'x()'}></p>`],
  ['a spread handler', () => html`<p ...${{ onMouseOver: 'x()' }}></p>`],
  ['markup as text', () => html`<p dangerouslySetInnerHTML=${{ __html: '<b>' }}></p>`],
  ['a document in a frame', () => html`<iframe srcdoc=${'<b>'}></iframe>`],
  ['a script as a link', () => html`<a href=${'javascript:alert(1)'}>x</a>`],
  ['one in other letters', () => html`<a href=${' jAvAsCrIpT:alert(1)'}>x</a>`],
  ['another host without a scheme', () => html`<form action=${'//evil.example'}></form>`],
  ['the same with a backslash', () => html`<a href=${'/\\evil.example'}>x</a>`],
  ['a drawn document', () => html`<img src=${'data:image/svg+xml,<svg/>'} />`],
] as const) {
  test(`a page with ${name} is not made`, t => {
    t.throws(() => renderPart(make()), { instanceOf: MarkupError });
  });
}

test('an object of JSON in place of a child is not taken for markup', t => {
  const parsed = JSON.parse('{"type":"script","props":{"children":"x"},"key":null}') as never;
  t.is(renderPart(html`<p>${parsed}</p>`), '<p></p>');
});

test('a page is the same each time, whatever was rendered before', t => {
  const make = (name: string) => renderPart(html`<ul><li><b>still</b></li><li>${name}</li></ul>`);
  const first = make('a');
  make('b');
  t.is(make('a'), first);
});

test('a field says its hint and its error to screen readers', t => {
  const text = renderPart(textField({ name: 'cap', label: 'Cap', hint: 'h', error: 'too many' }));
  t.regex(text, /<label for="cap">Cap<\/label>/);
  t.regex(text, /aria-describedby="cap-hint cap-error"/);
  t.regex(text, /aria-invalid="true"/);
  t.regex(text, /id="cap-error">too many</);
  const fine = renderPart(textField({ name: 'cap', label: 'Cap' }));
  t.notRegex(fine, /aria-/);
});

test('choices that were made stand in the form again', t => {
  const options = ['a', 'b'].map(value => ({ value, label: value }));
  const select = renderPart(selectField({ name: 's', label: 's', options, value: 'b' }));
  t.regex(select, /<option value="b" selected>/);
  const boxes = renderPart(checkboxGroup({ name: 's', label: 's', options, values: ['a'] }));
  t.regex(boxes, /value="a" checked/);
  t.notRegex(boxes, /value="b" checked/);
});

test('a chart draws every value in its frame, and says it in a table', t => {
  const chart = (values: number[]) =>
    renderPart(
      barChart({
        title: 't',
        series: ['s', 't'],
        bars: values.map((value, index) => ({
          label: `day ${index}`,
          shortLabel: String(index),
          values: [value, 0],
        })),
        format: String,
        tableLabel: 'table',
        barLabel: 'day',
      }),
    );
  for (const values of [[], [0], [1], [0, 3, 1_300_000], Array.from({ length: 92 }, () => 7)]) {
    const text = chart(values);
    t.notRegex(text, /NaN|Infinity|="-/);
    const drawn = text.match(/<rect class="series-0" x=/g) ?? [];
    t.is(drawn.length, values.filter(v => v > 0).length);
    for (const value of values) t.true(text.includes(`<td class="end">${value}</td>`));
  }
});

test('a query is written without what is absent', t => {
  t.is(withQuery('/x', { a: 'é&', b: undefined, c: '', d: 0 }), '/x?a=%C3%A9%26&d=0');
  t.is(withQuery('/x', {}), '/x');
});
