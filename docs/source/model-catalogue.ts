/** docs/appendix/model-catalogue.md: a line for each row of models/catalogue.json. */
import {
  type CatalogueModel,
  loadCatalogue,
} from '../../inference-node/model-tools/adding/catalogue.ts';

const HEAD = `# The model catalogue

What [models/catalogue.json](../../models/catalogue.json) has of each model: the size of its file, the side of its input, whether commercial use is allowed, and what its users measured. [models.md](../models.md#the-catalogue)
says how to read it. \`npm run matting -- models list --catalogue\` prints the same. \`make generate\` writes this page.

| Model | MB | Side | Commercial use: weights, data | Measured by others |
|---|---|---|---|---|
`;
const UNKNOWN = '–';

export async function modelCataloguePage(): Promise<string> {
  const rows = await loadCatalogue();
  return `${HEAD}${rows.map(rowOf).join('')}`;
}

function rowOf({ name, files, size, licence, measuredBy = UNKNOWN }: CatalogueModel): string {
  const bytes = files[0]?.bytes;
  const megabytes = bytes === undefined ? UNKNOWN : Math.round(bytes / 1e6);
  const more = size?.multipleOf === undefined ? '' : `, or other multiples of ${size.multipleOf}`;
  const side = size === undefined ? UNKNOWN : `${size.width}${more}`;
  const { weights, trainingData } = licence;
  const terms = `${weights.commercialUse}, ${trainingData.commercialUse}`;
  return `| \`${name}\` | ${megabytes} | ${side} | ${terms} | ${measuredBy.replace(/\.$/, '')} |\n`;
}
